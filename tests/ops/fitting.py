"""Cases that a variant can run: not every one reads every layout and dtype."""

import dataclasses


def fitted(variant, one):
    """The case, in the first layout or dtype of the variant where it does not read the case's own."""
    layout = one.layout if one.layout in variant.layouts else variant.layouts[0]
    dtype = one.dtype if one.dtype in variant.dtypes else variant.dtypes[0]
    return dataclasses.replace(one, layout=layout, dtype=dtype)
