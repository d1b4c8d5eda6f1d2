"""GPT-2 small (random weights, 12 blocks) whose fifth block uses ReLU instead of gelu_new."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "compile_error"

torch.manual_seed(0)
gpt2 = GPT2LMHeadModel(GPT2Config(use_cache=False)).eval()
gpt2.transformer.h[4].mlp.act = nn.ReLU()
tokens = torch.randint(0, 50257, (1, 48))

with torch.no_grad():
    print("eager   :", gpt2(input_ids=tokens).logits[0, -1].topk(3).indices)
    print("compiled:", torch.compile(gpt2)(input_ids=tokens).logits[0, -1].topk(3).indices)
