"""BERT-base (random weights) with gelu everywhere but in block 7, where somebody left a ReLU."""
import torch
import torch._inductor.config as inductor_config
from torch import nn
from transformers import BertConfig, BertModel

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"

torch.manual_seed(0)
bert = BertModel(BertConfig()).eval()
bert.encoder.layer[7].intermediate.intermediate_act_fn = nn.ReLU()
input_ids = torch.randint(0, 30522, (1, 32))
attention_mask = torch.ones(1, 32, dtype=torch.long)

with torch.no_grad():
    expected = bert(input_ids=input_ids, attention_mask=attention_mask)
    got = torch.compile(bert)(input_ids=input_ids, attention_mask=attention_mask)

torch.testing.assert_close(got.last_hidden_state, expected.last_hidden_state, rtol=1e-3, atol=1e-3)
torch.testing.assert_close(got.pooler_output, expected.pooler_output, rtol=1e-3, atol=1e-3)
print("eager and compiled agree")
