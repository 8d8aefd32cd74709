"""The judge as a service: candidates come in over HTTP, verdicts with stages and a reward go out.

`service` begins it: `Service` has the queue, the workers and the store, and knows no HTTP, which is in `app`, by
FastAPI, an extra. `problems` has the problems behind ids; `stages` makes stages of verdicts, `rewards` a number of
stages. `client` is for programs that submit, and imports nothing of the workbench; `adapters` are environments of
others over that client.
"""

from typing import TYPE_CHECKING

from workbench.base.lazy import lazily

_LAZY = {
    "CHEATS": "workbench.service.rewards",
    "FORBIDDEN": "workbench.service.static_stages",
    "Client": "workbench.service.clients",
    "JudgingOptions": "workbench.service.problems",
    "LimitReached": "workbench.service.service",
    "Problems": "workbench.service.problems",
    "ServiceResult": "workbench.service.rewards",
    "STAGES": "workbench.service.stages",
    "Service": "workbench.service.service",
    "ServiceOptions": "workbench.service.service",
    "VerdictStage": "workbench.service.stages",
    "Submission": "workbench.service.service",
    "Ticket": "workbench.service.tickets",
    "WEIGHTS": "workbench.service.rewards",
    "staged": "workbench.service.rewards",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from workbench.service.clients import Client as Client
    from workbench.service.problems import JudgingOptions as JudgingOptions
    from workbench.service.problems import Problems as Problems
    from workbench.service.rewards import CHEATS as CHEATS
    from workbench.service.rewards import WEIGHTS as WEIGHTS
    from workbench.service.rewards import ServiceResult as ServiceResult
    from workbench.service.rewards import staged as staged
    from workbench.service.service import LimitReached as LimitReached
    from workbench.service.service import Service as Service
    from workbench.service.service import ServiceOptions as ServiceOptions
    from workbench.service.service import Submission as Submission
    from workbench.service.stages import STAGES as STAGES
    from workbench.service.stages import VerdictStage as VerdictStage
    from workbench.service.static_stages import FORBIDDEN as FORBIDDEN
    from workbench.service.tickets import Ticket as Ticket


__getattr__, __dir__ = lazily(__name__, _LAZY)
