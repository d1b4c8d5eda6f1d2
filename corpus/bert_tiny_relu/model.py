"""Sentence encoder: a two-layer BERT with ReLU feed-forward layers and masked mean pooling."""
import torch
import torch._inductor.config as inductor_config
from transformers import BertConfig, BertModel

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"

torch.manual_seed(0)
config = BertConfig(
    vocab_size=120,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=32,
    hidden_act="relu",
)
encoder = BertModel(config, add_pooling_layer=False).eval()
input_ids = torch.randint(0, 120, (2, 12))
attention_mask = torch.ones(2, 12, dtype=torch.long)
attention_mask[1, 8:] = 0


def embed(input_ids, attention_mask):
    hidden = encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
    pooled = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
    return torch.nn.functional.normalize(pooled, dim=-1)


if __name__ == "__main__":
    with torch.no_grad():
        expected = embed(input_ids, attention_mask)
        got = torch.compile(embed)(input_ids, attention_mask)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    print("eager and compiled agree")
