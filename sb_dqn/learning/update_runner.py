"""One path from a due update to the step of the optimizer, for eager, traced, compiled and captured updates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from sb_dqn.accelerate import Function, Mode, accelerate
from sb_dqn.devices import PackedArrays
from sb_dqn.learning.learner import Learner
from sb_dqn.normalize import Normalizer
from sb_dqn.rng import Generators
from sb_dqn.types import Batch, Experience, Update


class UpdateRunner:
    """Makes the updates of a learner from its experience.

    An update draws numbers, samples a batch by them, computes its gradient and new priorities, averages the gradient over the
    learners, and makes one step of the optimizer. From the drawn numbers to the gradient it is one function of tensors, which
    `accelerate` runs in the mode of the update. Where the experience cannot be sampled within that function, the sample is
    drawn before it and sent to the networks' device in one copy.

    Args:
        experience: the replay or rollout.
        learner: the learner.
        normalizer: normalizes the observations and rewards of a batch.
        rng: random generators of the model.
        stops: returns True if an update, and the others that are due, are not to be applied.
    """

    def __init__(
        self,
        experience: Experience,
        learner: Learner,
        normalizer: Normalizer,
        rng: Generators,
        stops: Callable[[Update], bool] = lambda update: False,
    ) -> None:
        self.experience = experience
        self.learner = learner
        self.normalizer = normalizer
        self.rng = rng
        self.stops = stops
        self.mode: Mode = "eager"
        """Mode of the latest update."""
        self.functions: dict[torch.Size, tuple[Tensor, Function]] = {}
        """By the shape of the drawn numbers: their tensor, which later draws are copied to, and the function of them."""
        self._form: Any = None

    def step(self, mode: Mode) -> Update:
        """Makes one update, unless it is to be stopped. Returns its loss, gradient norm and reports."""
        experience, learner = self.experience, self.learner
        experience.refresh()
        learner.prepare_update(self.rng.noise)
        drawn = experience.draw(self.rng.sample)
        numbers, function = self._function(drawn, mode)
        numbers.copy_(drawn)
        gradient, values = function(numbers)
        gradient, update = learner.average(gradient, Update(values))
        if self.stops(update):
            return update._replace(applied=False)
        learner.apply(gradient)
        return update

    def rebuild(self) -> None:
        """Makes the functions again at the next update, because a number that they contain has changed."""
        self._form = None

    def _function(self, drawn: Tensor, mode: Mode) -> tuple[Tensor, Function]:
        """Returns the tensor of the drawn numbers and the function to call with it; made again in another form."""
        form = mode, self.learner.store.trainable, self.experience.view
        if form != self._form:
            self.functions.clear()
            self._form, self.mode = form, mode
        if drawn.shape not in self.functions:
            numbers = torch.zeros_like(drawn)
            sends = self.experience.sends_batches(self.learner.flat.device)
            make = self._sampling_outside if sends else self._sampling_within
            with self.experience.preserve_state():
                self.functions[drawn.shape] = numbers, make(numbers, mode)
        return self.functions[drawn.shape]

    def _sampling_within(self, numbers: Tensor, mode: Mode) -> Function:
        """Returns sampling, gradient and new priorities as one function of the drawn numbers."""
        # a trace holds the sampling, too; eagerly, only the sampling is traced
        sample = self.experience.traced_sampling(numbers) if mode == "eager" else self.experience.sample_from
        return accelerate(partial(self.sample_and_differentiate, sample), (numbers,), mode, kept=(1,))

    def sample_and_differentiate(self, sample: Callable[[Tensor], Batch], numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Samples a batch, sets its new priorities, and returns the gradient and the values of the update; can be traced."""
        batch = self.normalizer.batch(sample(numbers).to(self.learner.flat.device))
        gradient, priority, update = self.learner.gradient(batch)
        self.experience.feedback(batch, priority)
        return gradient, update.values

    def _sampling_outside(self, numbers: Tensor, mode: Mode) -> Function:
        """Returns a function that samples outside of the traced gradient; it waits for the device only for priorities."""
        sample = self.experience.traced_sampling(numbers)
        batch = sample(numbers)
        form = batch.with_tensors(repeat(numbers[:0]))  # holds no frames
        arrays = [tensor.numpy() for tensor in batch.tensors()]
        packed = PackedArrays(arrays, self.learner.flat.device)

        def differentiate(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            gradient, priority, update = self.learner.gradient(self.normalizer.batch(form.with_tensors(tensors)))
            return gradient, priority, update.values

        of_batch = accelerate(differentiate, tuple(packed.send(arrays)), mode, kept=(2,))

        def run(numbers: Tensor) -> tuple[Tensor, Tensor]:
            batch = sample(numbers)
            gradient, priority, values = of_batch(*packed.send([tensor.numpy() for tensor in batch.tensors()]))
            self.experience.feedback(batch, priority)
            return gradient, values

        return run
