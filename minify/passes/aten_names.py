"""Which ATen calls have which torch call for a counterpart. Names only; `idiomatic_calls` writes the calls."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# aten::<name> is torch.<name>, with the same arguments in the same places, whatever the overload.
TORCH_FUNCTIONS = words(
    """
    abs acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax angle any arange argmax
    argmin argsort as_strided asin asinh atan atan2 atanh baddbmm bernoulli bitwise_and bitwise_not bitwise_or
    bitwise_xor bmm bucketize cat ceil clamp clamp_max clamp_min clone complex constant_pad_nd
    convolution copysign cos cosh count_nonzero cummax cummin cumprod cumsum deg2rad diagonal diff div dot empty
    empty_like empty_strided eq erf erfc erfinv exp exp2 expm1 eye fill flip floor floor_divide fmax fmin fmod
    frac frexp full full_like gather ge grid_sampler_2d gt heaviside histc hypot igamma imag index_add index_copy
    index_fill index_select isfinite isinf isnan kthvalue ldexp le lerp lgamma linspace log log10 log1p log2
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp lt
    masked_fill masked_scatter masked_select max maximum mean median min minimum mm mode movedim mul multinomial
    mv mvlgamma nan_to_num nanmedian nansum narrow native_batch_norm native_dropout native_group_norm
    native_layer_norm ne neg nextafter nonzero normal ones ones_like poisson polar polygamma pow prod quantile
    rad2deg rand rand_like randint randint_like randn randn_like randperm real reciprocal relu remainder renorm
    repeat_interleave roll rot90 round rsqrt rsub scalar_tensor scatter scatter_add scatter_reduce searchsorted
    select select_scatter sgn sigmoid sign signbit sin sinc sinh slice_scatter sort split split_with_sizes sqrt
    square stack std std_mean sub sum take tan tanh topk trace tril tril_indices triu triu_indices trunc unbind
    unfold_copy unsafe_split var var_mean vdot view_as_complex view_as_real where xlogy zeros zeros_like
    """
)
FUNCTIONAL_FUNCTIONS = words(
    """
    avg_pool1d avg_pool2d avg_pool3d celu elu gelu glu hardsigmoid hardswish hardtanh leaky_relu mish
    pixel_shuffle pixel_unshuffle relu6 selu silu softplus softshrink
    """
)
METHODS = words(
    """
    copy_ detach expand new_empty new_full new_ones new_zeros normal_ permute repeat reshape squeeze t transpose
    unfold uniform_ unsqueeze view zero_
    """
)
RENAMED = {
    "_unsafe_view": ".view",
    "_adaptive_avg_pool2d": "torch.nn.functional.adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "torch.nn.functional.adaptive_avg_pool3d",
    "_local_scalar_dense": ".item",
    "lift_fresh_copy": ".clone",
    "linalg_vector_norm": "torch.linalg.vector_norm",
    "log_sigmoid": "torch.nn.functional.logsigmoid",
    "sym_numel": ".numel",
    "sym_size": ".size",
}
