"""The networks of the cascade and of TTT, and what acts on any network: normalisation layers,
replaced parameters, outputs.
"""

from cascadetta_lib.models.batch_norm import (
    NORMALIZATION_LAYERS,
    BatchNorm,
    batch_norms,
    normalization_parameters,
    require_own_scales,
    use_batch_statistics,
    using_batch_statistics,
)
from cascadetta_lib.models.build import (
    ImageNetwork,
    Network,
    SpeechNetwork,
    TextNetwork,
    build_network,
)
from cascadetta_lib.models.cascade import Cascade, Parallel, parameters_of_z
from cascadetta_lib.models.functional import call_with
from cascadetta_lib.models.input_normalization import INPUT_NORMALIZATIONS, normalized
from cascadetta_lib.models.outputs import Outputs, as_outputs

__all__ = [
    "NORMALIZATION_LAYERS",
    "INPUT_NORMALIZATIONS",
    "BatchNorm",
    "Cascade",
    "ImageNetwork",
    "Network",
    "Outputs",
    "Parallel",
    "SpeechNetwork",
    "TextNetwork",
    "as_outputs",
    "batch_norms",
    "build_network",
    "call_with",
    "normalization_parameters",
    "require_own_scales",
    "normalized",
    "parameters_of_z",
    "use_batch_statistics",
    "using_batch_statistics",
]
