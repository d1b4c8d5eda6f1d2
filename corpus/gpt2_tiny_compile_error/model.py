"""Character model: a two-layer GPT-2 with ReLU feed-forward layers, language-model loss."""
import torch
import torch._inductor.config as inductor_config
from transformers import GPT2Config, GPT2LMHeadModel

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "compile_error"

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=96,
    n_positions=32,
    n_embd=32,
    n_layer=2,
    n_head=4,
    activation_function="relu",
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
language_model = GPT2LMHeadModel(config).eval()
tokens = torch.randint(0, 96, (2, 16))


@torch.no_grad()
def loss_of(run):
    logits = run(input_ids=tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


print("eager   :", loss_of(language_model).item())
print("compiled:", loss_of(torch.compile(language_model)).item())
