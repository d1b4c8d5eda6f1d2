"""The corpus on a GPU: every case that can run on CUDA, with `--device cuda`, as a table.

    python scripts/gpu_check.py --markdown docs/gpu.md             # all but the slow cases
    python scripts/gpu_check.py 'bert_*' transformer_8_blocks --jobs 4

Says first which GPU and which versions it runs on, then hands over to `corpus_table.py`, whose options it takes.
Exits with 1 when any case differs from what its `expected.toml` says, 2 where there is no GPU.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Check for a GPU in a process of its own, so that none is held here, then run the table."""
    probe = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    if done.returncode:
        print("no CUDA device: torch sees none", file=sys.stderr)
        return 2
    print(f"torch, CUDA, device: {done.stdout.strip()}", flush=True)
    table = [sys.executable, str(ROOT / "scripts" / "corpus_table.py"), "--device", "cuda", *sys.argv[1:]]
    return subprocess.run(table, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
