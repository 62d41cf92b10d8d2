"""ERM, and AdaBN (Li et al. 2016). Neither ever updates."""

from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.base import Method
from cascadetta_lib.methods.refusals import require_batch_norm
from cascadetta_lib.methods.statistics_memory import WithMemory
from cascadetta_lib.models import batch_norms


@METHODS.add("erm")
class ERM(Method):
    """Predict without adaptation, by the source's BatchNorm statistics.

    Raises ValueError if a BatchNorm has no running statistics.
    """

    objective = "erm"
    label = "ERM"
    adapts = False

    def configure_model(self) -> None:
        if any(norm.running_mean is None for norm in batch_norms(self.model)):
            raise ValueError(
                f"{self.label}: a BatchNorm has no running statistics, so that each prediction "
                "depends on its batch; use adabn"
            )
        self.model.eval()
        self.model.requires_grad_(False)


@METHODS.add("adabn")
class AdaBN(WithMemory):
    """Normalise by the statistics of the current batch in every BatchNorm. Equal to Tent at
    learning rate 0.
    """

    label = "AdaBN"
    adapts = False

    def configure_model(self) -> None:
        require_batch_norm(self.label, self.model)
        super().configure_model()
