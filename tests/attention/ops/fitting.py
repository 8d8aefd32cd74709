"""Cases that a variant can run: not every one reads every layout and dtype."""

import dataclasses


def fitted(variant, one):
    """The case, in the first layout or dtype of the variant where it does not read the case's own.

    A variant of nvfp4 alone gets such a cache, and heads of whole groups.
    """
    if variant.needs:
        scales = "head" if one.scales == "token" else one.scales
        one = dataclasses.replace(one, kv_cache_dtype="nvfp4", scales=scales, head_size=-(-one.head_size // 16) * 16)
    layout = one.layout if one.layout in variant.layouts else variant.layouts[0]
    dtype = one.dtype if one.dtype in variant.dtypes else variant.dtypes[0]
    return dataclasses.replace(one, layout=layout, dtype=dtype)
