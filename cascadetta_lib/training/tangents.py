"""Differentiable directional derivatives of a loss that is already computed.

`Tape` records the functions that a model calls on its way to the loss. `Tape.derivative` then goes
through these calls in forward mode. If θ moves along θ̇, every tensor x has a tangent ẋ, and the
tangent of the loss is ⟨∇L, θ̇⟩. Ordinary backward finds the gradient of that tangent, which is the
product H θ̇ of Algorithm 1. All this costs one more forward and two more backward passes. Double
backward finds the same product, but it computes parts of the model again, and it has no closed form
for BatchNorm's second derivatives.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

TensorVersion = tuple[int, int]
"""Identifies a tensor and its value: its id, and its version, which in-place changes increment."""


class UnknownFunctionError(Exception):
    """Raised if the tangent of a function on the way to the loss cannot be computed. The message
    says which function and why.
    """


@dataclass(frozen=True)
class Call:
    """One call of a function.

    versions: the versions of the tensors in its arguments before the call, by id. result: the
    version of its output.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Tensor
    versions: dict[int, TensorVersion]
    result: TensorVersion


class Tape(TorchFunctionMode):
    """Record every call of torch whose result is one tensor that needs a gradient, and keep the
    tensors of these calls alive.

    Use as `with Tape() as tape:`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        versions = {id(x): _version_of(x) for x in _tensors((args, kwargs))}
        output = func(*args, **kwargs)
        if isinstance(output, Tensor) and output.requires_grad:
            self.calls.append(Call(func, args, kwargs, output, versions, _version_of(output)))
        return output

    def derivative(self, loss: Tensor, along: Mapping[Tensor, Tensor]) -> Tensor:
        """Return Σ ⟨∂L/∂θ, θ̇⟩, the derivative of a recorded loss L along θ̇, as a scalar that can
        be differentiated once more.

        loss: a scalar. along: the direction θ̇ of each parameter θ that moves.

        Raises UnknownFunctionError if a function between the parameters and the loss has no rule,
        if a tensor between them was made by a function that the tape did not record, or if a value
        that a rule needs was changed in place. After this error the tape and the graph are as they
        were, so the caller can still use double backward.
        """
        tangents = {_version_of(parameter): direction for parameter, direction in along.items()}
        for call in self._on_the_way_to(loss):
            known = {
                key: tangents[version]
                for key, version in call.versions.items()
                if version in tangents
            }
            if known:
                tangents[call.result] = _tangent(call, known)
        return tangents.get(_version_of(loss), torch.zeros_like(loss))

    def require_double_backward(self, told: str) -> None:
        """Raise ValueError if double backward through the recorded calls would be wrong, because
        one of them is torch._weight_norm (`_weight_norm_by_formula`).

        told: the beginning of the message: who uses double backward, and why.
        """
        if any(call.function is torch._weight_norm for call in self.calls):
            raise ValueError(
                f"{told}, and torch differentiates weight_norm wrongly the second time; allowed "
                "are networks without weight_norm"
            )

    def _on_the_way_to(self, loss: Tensor) -> list[Call]:
        """Return the calls that the loss depends on, in their order."""
        made = {call.result for call in self.calls}
        needed = {_version_of(loss)}
        found = list[Call]()
        for call in reversed(self.calls):
            if call.result in needed:
                found.append(call)
                needed.update(call.versions.values())
        for call in found:
            for x in _tensors((call.args, call.kwargs)):
                if x.requires_grad and not x.is_leaf and call.versions[id(x)] not in made:
                    raise UnknownFunctionError(f"{_name(call)} of a tensor that was not recorded")
        return found[::-1]


def _version_of(x: Tensor) -> TensorVersion:
    return id(x), x._version


def _tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors in arguments, which may be nested."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for branch in tree:
            yield from _tensors(branch)


def _name(call: Call) -> str:
    return str(getattr(call.function, "__name__", call.function))


Known = Mapping[int, Tensor]
"""The tangents of a call's tensors by id; tensors that do not move are absent."""
Rule = Callable[[Call, Known], Tensor]
"""A rule returns the tangent of a call's output."""


def _tangent(call: Call, known: Known) -> Tensor:
    """Return the tangent of the call's output, by the rule of its function."""
    rule = RULES.get(call.function)
    arguments = {id(x) for x in (*call.args, *call.kwargs.values())}
    if rule is None or not known.keys() <= arguments:
        raise UnknownFunctionError(f"{_name(call)} has no tangent here")
    if len(call.args) < COUNT_BY_POSITION.get(rule, 1):
        raise UnknownFunctionError(f"{_name(call)} was called with its arguments by name")
    return rule(call, known)


def _must_be_unchanged(call: Call, *tensors: Tensor | None) -> None:
    for x in tensors:
        if x is not None and _version_of(x) != call.versions.get(id(x), call.result):
            raise UnknownFunctionError(f"a tensor of {_name(call)} was changed in place")


def _linear(call: Call, known: Known) -> Tensor:
    """Return the tangent of a function that is linear in its first argument and has no other
    tensor.
    """
    x, *rest = call.args
    if known.keys() != {id(x)} or call.kwargs.get("value"):  # padding by a value that is not 0
        raise UnknownFunctionError(f"{_name(call)} is not linear as it was called")
    tangent: Tensor = call.function(known[id(x)], *rest, **call.kwargs)
    return tangent


def _addition(call: Call, known: Known) -> Tensor:
    """Return the tangent of x + y, computed in place or not."""
    if call.kwargs:
        raise UnknownFunctionError(f"{_name(call)} with options")
    moving = [known[id(x)] for x in call.args if id(x) in known]
    return sum(moving[1:], moving[0]).expand(call.output.shape).to(call.output.dtype)


def _masked_fill(call: Call, known: Known) -> Tensor:
    """Return ẋ, with 0 in place of elements that a constant replaced in x."""
    x, mask, value = call.args
    if known.keys() != {id(x)} or isinstance(value, Tensor):
        raise UnknownFunctionError(f"{_name(call)} is not by a constant")
    _must_be_unchanged(call, mask)
    return known[id(x)].masked_fill(mask, 0)


def _affine(call: Call, known: Known) -> Tensor:
    """Return the tangent of a convolution or a linear layer, W x + b: W ẋ + Ẇ x + ḃ."""
    x, weight, *rest = call.args
    bias = rest[0] if rest else call.kwargs.get("bias")
    options = rest[1:]
    named = {name: value for name, value in call.kwargs.items() if name != "bias"}
    total = None
    if id(x) in known:
        _must_be_unchanged(call, weight)
        total = call.function(known[id(x)], weight, None, *options, **named)
    if id(weight) in known or id(bias) in known:
        _must_be_unchanged(call, x)
        moved = known[id(weight)] if id(weight) in known else torch.zeros_like(weight)
        own = call.function(x, moved, known.get(id(bias)), *options, **named)
        total = own if total is None else total + own
    assert total is not None
    return total


def _relu(call: Call, known: Known) -> Tensor:
    """Return ẋ where the output is positive, and 0 elsewhere. Only the output is needed, so an
    in-place ReLU may have overwritten x.
    """
    if _version_of(call.output) != call.result:
        raise UnknownFunctionError("the output of a ReLU was changed in place")
    return torch.ops.aten.threshold_backward(known[id(call.args[0])], call.output.detach(), 0)


def _batch_norm(call: Call, known: Known) -> Tensor:
    """Return the tangent of BatchNorm.

    With batch statistics it has a closed form (BatchNormTangent). With running statistics, which
    are constants, `_by_transposed_gradient` computes it.
    """
    x, running_mean, running_var, *_ = call.args
    weight = call.kwargs["weight"]
    bias = call.kwargs["bias"]
    if not call.kwargs["training"]:
        return _by_transposed_gradient(call, known)
    if any(each is not None and each.dtype != x.dtype for each in (weight, bias)):
        raise UnknownFunctionError("BatchNorm in another precision than its parameters")
    _must_be_unchanged(call, x, weight)
    moved = [None if each is None else known.get(id(each)) for each in (weight, bias)]
    eps = call.kwargs["eps"]
    if id(x) in known:
        tangent: Tensor = BatchNormTangent.apply(known[id(x)], x, weight, *moved, eps)
        return tangent
    scale, shift = (x.new_zeros(x.shape[1]) if each is None else each for each in moved)
    return F.batch_norm(x, None, None, scale, shift, training=True, eps=eps)


def _by_transposed_gradient(call: Call, known: Known) -> Tensor:
    """Return the tangent of a function for which there is no formula here. The function must cost
    little beside the convolutions.

    The gradient for a cotangent c on the output is linear in c. The transpose of this linear map
    gives the tangent. The function is computed again, on aliases of its tensors, so that the
    gradient is through this one function alone.

    Torch must differentiate the function correctly three times. So add a function to SMOOTH only
    with a test. (layer_norm fails such a test: its third derivative takes mean and variance for
    constants.)
    """
    _must_be_unchanged(call, *_tensors((call.args, call.kwargs)))
    aliases = {id(x): x.view_as(x) for x in call.args if id(x) in known}
    aliases |= {id(x): x.view_as(x) for x in call.kwargs.values() if id(x) in known}
    args = [aliases.get(id(x), x) for x in call.args]
    kwargs = {name: aliases.get(id(x), x) for name, x in call.kwargs.items()}
    output = call.function(*args, **kwargs)
    cotangent = torch.zeros_like(output, requires_grad=True)
    pulled_back = torch.autograd.grad(
        output, list(aliases.values()), cotangent, create_graph=True, materialize_grads=True
    )
    (tangent,) = torch.autograd.grad(
        pulled_back, cotangent, [known[key] for key in aliases], create_graph=True
    )
    return tangent


def _weight_norm_by_formula(direction: Tensor, length: Tensor, dim: int) -> Tensor:
    """Return length · direction / ‖direction‖, the weight of a weight-normalised layer.

    This is torch._weight_norm by its formula. Torch differentiates its own function correctly once,
    but not twice (torch 2.14.1; findings/second-derivative-of-weight-norm.sh).

    dim: the norm is over all dimensions except this one; −1: over all dimensions.
    """
    return direction * (length / torch.norm_except_dim(direction, 2, dim))


def _weight_norm(call: Call, known: Known) -> Tensor:
    """Return the tangent of torch._weight_norm, by the formula."""
    return _by_transposed_gradient(replace(call, function=_weight_norm_by_formula), known)


def _mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance (divided by n) of each channel of x (B, C, …): two tensors
    (C,).
    """
    if x.device.type == "cpu":
        # This is one pass over x. var_mean takes several if channels lie last in memory.
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        return mean, variance
    variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    return mean, variance


class BatchNormTangent(torch.autograd.Function):
    """The tangent of y = w x̂ + b, where x̂ = r (x − μ). The mean and the variance of x over all
    dimensions except the channels are μ and 1/r² − ε.

        ẏ = w r P(ẋ) + ẇ x̂ + ḃ     where  P(u) = u − mean(u) − x̂ mean(x̂ u)

    Its gradients, where G is the gradient with respect to ẏ, and ẇ and ḃ are taken for constants:

        of ẋ:  w r P(G)
        of x:  r (ẇ − w r mean(x̂ ẋ)) P(G) − w r² mean(x̂ G) P(ẋ) − w r² mean(G P(ẋ)) x̂
        of w:  r ΣG P(ẋ)
    """

    @staticmethod
    def forward(
        ctx: Any,
        moving: Tensor,
        x: Tensor,
        weight: Tensor | None,
        weight_moving: Tensor | None,
        bias_moving: Tensor | None,
        eps: float,
    ) -> Tensor:
        mean, variance = _mean_and_variance(x)
        r = torch.rsqrt(variance + eps)
        scale = r if weight is None else weight * r
        mean_xhat_x_dot, mean_x_dot = _projections(moving, x, mean, r)
        on_normalised = -scale * mean_xhat_x_dot
        if weight_moving is not None:
            on_normalised = on_normalised + weight_moving
        on_x = on_normalised * r
        constant = -scale * mean_x_dot - on_x * mean
        if bias_moving is not None:
            constant = constant + bias_moving
        ctx.save_for_backward(moving, x, mean, r, scale, mean_xhat_x_dot, mean_x_dot, on_x)
        return _combination(constant, (scale, moving), (on_x, x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        moving, x, mean, r, scale, mean_xhat_x_dot, mean_x_dot, on_x = ctx.saved_tensors
        g_along, g_mean = _projections(g, x, mean, r)
        rest = [axis for axis in range(x.ndim) if axis != 1]
        product = (g * moving).mean(rest) - g_mean * mean_x_dot - g_along * mean_xhat_x_dot
        of_weight = product * r * (x.numel() / x.shape[1])
        on_moving = -scale * r * g_along  # the factor of x − mean(x) in the gradient of ẋ
        of_moving = _combination(-scale * g_mean - on_moving * mean, (scale, g), (on_moving, x))
        of_x = None
        if ctx.needs_input_grad[1]:
            on_centred = -r * (on_x * g_along + on_moving * mean_xhat_x_dot + scale * r * product)
            constant = -on_x * g_mean - on_moving * mean_x_dot - on_centred * mean
            of_x = _combination(constant, (on_x, g), (on_moving, moving), (on_centred, x))
        return of_moving, of_x, of_weight if ctx.needs_input_grad[2] else None, None, None, None


def _projections(u: Tensor, x: Tensor, mean: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean(x̂ u) and mean(u), (C,) each. BatchNorm's own backward computes the sums of x̂ u
    and of u as the gradients of its scale and shift.
    """
    _, on_weight, on_bias = torch.ops.aten.native_batch_norm_backward(
        u, x, None, None, None, mean, r, True, 0.0, [False, True, True]
    )
    count = x.numel() / x.shape[1]
    return on_weight / count, on_bias / count


def _combination(constant: Tensor, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """Return constant + Σ factor · x. The constant and the factors are per channel, (C,) each."""
    shape = (1, -1, *[1] * (terms[0][1].ndim - 2))
    (factor, x), *others = terms
    total = torch.addcmul(constant.view(shape), x, factor.view(shape))
    for factor, x in others:
        total.addcmul_(x, factor.view(shape))
    return total


def _named(*names: str) -> list[Callable[..., Any]]:
    """Return the functions of torch and the methods of Tensor that have these names."""
    places = (torch, Tensor)
    return [getattr(place, name) for name in names for place in places if hasattr(place, name)]


AFFINE = [F.conv1d, F.conv2d, F.conv3d, F.linear]
RELUS = [F.relu, F.relu_, *_named("relu", "relu_")]
ADDITIONS = _named("add", "add_")
LINEAR = [
    *[F.avg_pool1d, F.avg_pool2d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.pad],
    *_named("flatten", "reshape", "view", "transpose", "permute", "squeeze", "unsqueeze"),
    *_named("contiguous", "to", "mean", "sum", "neg"),
]
SMOOTH = [
    *[F.cross_entropy, F.log_softmax, F.softmax, F.max_pool2d, F.gelu],
    *_named("log_softmax", "softmax", "logsumexp", "exp", "log", "sub", "mul", "div"),
    *_named("matmul", "tanh", "sigmoid", "square"),
]

COUNT_BY_POSITION: dict[Rule, int] = {_affine: 2, _masked_fill: 3}
"""The number of positional arguments that a rule needs, if it is more than one."""
RULES: dict[Any, Rule] = {
    F.batch_norm: _batch_norm,
    torch._weight_norm: _weight_norm,
    Tensor.masked_fill: _masked_fill,
    **dict.fromkeys(AFFINE, _affine),
    **dict.fromkeys(RELUS, _relu),
    **dict.fromkeys(ADDITIONS, _addition),
    **dict.fromkeys(LINEAR, _linear),
    **dict.fromkeys(SMOOTH, _by_transposed_gradient),
}
"""The rule of each function. A rule takes a call and the tangents of its tensors, and returns the
tangent of its output.
"""
