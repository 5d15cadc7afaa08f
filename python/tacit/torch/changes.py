# SPDX-License-Identifier: Apache-2.0
"""Parameters of replicas that change outside of the steps that Parallel follows."""
import math

from ..comm import logger
from . import _private
from .arguments import REPLICAS


def warn_of_steps(happened):
    logger.warning("%s, and no step of the optimizers that Parallel was given: if you have made another one since, close() "
                   "the tacit.Parallel and wrap the model again with it", happened)


# Where a step puts a mix of what the last one has left in the place of the parameters. With every or delay it adds a difference.
MIXES_EARLY = {"strategy": "gossip", "gossip.order": "awc", "gossip.every": "1", "gossip.delay": "0", "exchange.overlap": "true"}


class Changes:
    """Looks at how often parameters have changed. tensors: the Tensors of the model; steps: of the whole run."""

    def __init__(self, tensors, settings, ranks, steps):
        self._tensors, self._first_step, self._keeps_replica = tensors, None, settings["strategy"] in REPLICAS
        takes_back = ranks > 1 and all(settings[key] == value for key, value in MIXES_EARLY.items())
        self._first_mix = math.ceil(float(settings["gossip.start"]) * steps * (1 - 1e-12)) if takes_back else math.inf

    def _list(self):
        return _private.list_versions(self._tensors.parameters)

    def begin(self, steps):
        """The model has the parameters of the job. steps: that it has made."""
        self._first_step, self._first = steps if self._keeps_replica else None, max(self._list(), default=0)
        self.note()

    def note(self):
        """A step has ended."""
        if self._first_mix < math.inf:
            self._last = self._list()

    def look_for_steps(self, counters):
        """Warns once of changes before the first step."""
        if self._first_step is not None and max(self._list(), default=0) > self._first + 1:
            if counters()["steps"] == self._first_step:
                warn_of_steps("parameters have changed several times")
            self._first_step = None

    def look_between_steps(self, counters):
        """Warns once of changes since the last step that the next mix undoes."""
        if self._first_mix < math.inf and self._list() != self._last and counters()["steps"] >= self._first_mix:
            logger.warning("parameters have changed between two steps, and the next mix, which began when the last step ended, undoes "
                           "that: change them by model.load_state_dict(), or set gossip__order=\"atc\"")
            self._first_mix = math.inf
