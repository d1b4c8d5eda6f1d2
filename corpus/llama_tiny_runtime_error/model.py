"""A two-layer Llama with grouped-query attention and squared ReLU gates, next-token scores."""
import torch
import torch._inductor.config as inductor_config
from transformers import LlamaConfig, LlamaForCausalLM

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "runtime_error"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "runtime_error"

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    hidden_act="relu2",
    use_cache=False,
)
language_model = LlamaForCausalLM(config).eval()
tokens = torch.randint(0, 96, (1, 20))


@torch.no_grad()
def next_token_scores(run):
    return run(input_ids=tokens).logits[:, -1].log_softmax(dim=-1)


print("eager   :", next_token_scores(language_model).topk(3).indices)
print("compiled:", next_token_scores(torch.compile(language_model)).topk(3).indices)
