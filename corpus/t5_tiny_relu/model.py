"""Translation with a two-layer T5: encoder, decoder, cross-attention, logits of the whole target."""
import torch
import torch._inductor.config as inductor_config
from transformers import T5Config, T5ForConditionalGeneration

inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
inductor_config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"

torch.manual_seed(0)
config = T5Config(
    vocab_size=96,
    d_model=32,
    d_kv=8,
    d_ff=64,
    num_layers=2,
    num_heads=4,
    feed_forward_proj="relu",
    use_cache=False,
    decoder_start_token_id=0,
    initializer_factor=1.0,
)
translator = T5ForConditionalGeneration(config).eval()
source = torch.randint(1, 96, (2, 14))
target = torch.randint(1, 96, (2, 9))

with torch.no_grad():
    expected = translator(input_ids=source, decoder_input_ids=target).logits
    compiled = torch.compile(translator)
    got = compiled(input_ids=source, decoder_input_ids=target).logits

torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
print("eager and compiled agree")
