"""Options that the commands on an op's variants share."""

from __future__ import annotations

import click

from workbench.analysis.device_models import device_model
from workbench.base.options import checked, config_option

sample_option = click.option(
    "--sample",
    default=None,
    type=int,
    metavar="BLOCKS",
    help="On the simulator count about so many blocks of each launch (16 are a good number), and scale.",
)
model_option = click.option(
    "--model", callback=checked(device_model), help="Without a GPU, the one to predict for (default: an A100)."
)
variant_config_option = config_option(
    "Use this configuration, as tables print it: 'NUM_THREADS=128 VEC=4', 'VARIANT:...' where several variants have "
    "these tunables (repeatable); tunables left out have their untuned values."
)
judged_option = click.option(
    "--judged-on", default=None, metavar="NAME", help="With --sample the small case that values are judged on."
)
