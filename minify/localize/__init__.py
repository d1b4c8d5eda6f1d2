"""Where in the compile chain does the failure first show? `STAGES` is the ladder, as data; `first_stage` climbs it."""

from __future__ import annotations

from minify.localize.climb import Localised, Rung, first_stage, seen_at
from minify.localize.stages import STAGES, Stage, backend_name, ladder

__all__ = ["STAGES", "Localised", "Rung", "Stage", "backend_name", "first_stage", "ladder", "seen_at"]
