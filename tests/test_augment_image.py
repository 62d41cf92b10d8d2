"""AugMix against Pillow's operations, and CoTTA's augmentation against torchvision's."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import functional as TF

from cascadetta_lib.augment import image as module
from cascadetta_lib.augment.image import (
    DEPTH,
    OPERATIONS,
    WIDTH,
    AugMixDraw,
    apply_augmix,
    augmix,
    cotta_augment,
    draw_augmix,
    draw_cotta,
)


@pytest.fixture
def pictures() -> Tensor:
    """Smooth random pictures with a different range each, uint8 (6, 3, 32, 32)."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 3, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (32, 32), mode="bicubic").clamp(0, 1)
    return (smooth * torch.linspace(90, 255, 6).view(-1, 1, 1, 1)).to(torch.uint8)


def one_operation(count: int, name: str, magnitude: float) -> AugMixDraw:
    """A draw whose result is that operation alone."""
    return AugMixDraw(
        torch.full((count, WIDTH, DEPTH), OPERATIONS.index(name)),
        torch.full((count, WIDTH, DEPTH), magnitude),
        torch.ones(count, WIDTH, dtype=torch.long),
        torch.tensor([1.0, 0.0, 0.0]).expand(count, WIDTH),
        torch.ones(count),
    )


def by_pillow(pictures: Tensor, function: object) -> Tensor:
    arrays = [np.asarray(function(Image.fromarray(p.permute(1, 2, 0).numpy()))) for p in pictures]  # type: ignore[operator]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("name", "function", "tolerance"),
    [
        ("autocontrast", ImageOps.autocontrast, 1),
        ("equalize", ImageOps.equalize, 0),
        ("posterize", lambda image: ImageOps.posterize(image, 4), 0),
        ("solarize", lambda image: ImageOps.solarize(image, 256 - 51), 0),
    ],
)
def test_operations_are_pillows(pictures: Tensor, name: str, function: object, tolerance: int) -> None:
    ours = apply_augmix(pictures, one_operation(len(pictures), name, 0.2))
    assert (ours.int() - by_pillow(pictures, function).int()).abs().max() <= tolerance


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("shear_x", (1, 0.3 * 0.2, -0.3 * 0.2 * 15.5, 0, 1, 0)),
        ("shear_y", (1, 0, 0, 0.3 * 0.2, 1, -0.3 * 0.2 * 15.5)),
        ("translate_x", (1, 0, 32 / 3 * 0.2, 0, 1, 0)),
        ("translate_y", (1, 0, 0, 0, 1, 32 / 3 * 0.2)),
    ],
)
def test_affine_operations_are_pillows_about_the_centre(pictures: Tensor, name: str, matrix: tuple[float, ...]) -> None:
    ours = apply_augmix(pictures, one_operation(len(pictures), name, 0.2))
    theirs = by_pillow(
        pictures, lambda i: i.transform((32, 32), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    )
    # Pillow leaves a pixel black whose source lies over the border, we blend it: compare the inside.
    inside = (slice(None), slice(None), slice(6, 26), slice(6, 26))
    assert (ours[inside].int() - theirs[inside].int()).abs().max() <= 2


def test_rotation_is_by_30_degrees_times_the_magnitude(pictures: Tensor) -> None:
    ours = apply_augmix(pictures, one_operation(len(pictures), "rotate", 0.3))[:, :, 8:24, 8:24].float()
    angles = {a: TF.rotate(pictures, a, TF.InterpolationMode.BILINEAR)[:, :, 8:24, 8:24].float() for a in (-9, 0, 9)}
    errors = {angle: (ours - turned).abs().mean().item() for angle, turned in angles.items()}
    assert min(errors[-9], errors[9]) < 1 < errors[0]


def test_a_draw_can_be_applied_twice_and_depends_on_the_generator_alone(pictures: Tensor) -> None:
    draw = draw_augmix(6, torch.Generator().manual_seed(5))
    assert torch.equal(apply_augmix(pictures, draw), apply_augmix(pictures, draw))
    assert torch.equal(apply_augmix(pictures, draw), augmix(pictures, torch.Generator().manual_seed(5)))
    assert not torch.equal(apply_augmix(pictures, draw), augmix(pictures, torch.Generator().manual_seed(6)))


def test_draws_are_in_range() -> None:
    draw = draw_augmix(3000, torch.Generator().manual_seed(0))
    assert set(draw.operation.unique().tolist()) == set(range(len(OPERATIONS)))
    assert draw.magnitude.abs().max() <= 0.3 and draw.magnitude.abs().min() >= 0.01
    assert set(draw.depth.unique().tolist()) == {1, 2, 3}
    assert torch.allclose(draw.weight.sum(1), torch.ones(3000)) and draw.weight.mean(0).sub(1 / 3).abs().max() < 0.02
    assert abs(draw.mix.mean() - 0.5) < 0.02


def test_nothing_mixed_in_leaves_the_image(pictures: Tensor) -> None:
    draw = draw_augmix(6, torch.Generator().manual_seed(0))._replace(mix=torch.zeros(6))
    assert torch.equal(apply_augmix(pictures, draw), pictures)


def test_shared_is_one_mixture_for_the_batch(pictures: Tensor) -> None:
    same = pictures[:1].expand(6, -1, -1, -1)
    shared = augmix(same, torch.Generator().manual_seed(1), shared=True)
    assert all(torch.equal(shared[0], other) for other in shared)
    alone = augmix(same, torch.Generator().manual_seed(1))
    assert any(not torch.equal(alone[0], other) for other in alone)


def test_no_operation_overlaps_with_the_benchmark() -> None:
    assert not {"brightness", "contrast", "color", "sharpness"} & set(OPERATIONS)


def test_cotta_colours_are_torchvisions(pictures: Tensor) -> None:
    x, column = pictures.float() / 255, torch.full((6, 1, 1, 1), 1.2)
    assert torch.allclose(module._blend_black(x, column), TF.adjust_brightness(x, 1.2), atol=1e-5)
    assert torch.allclose(module._blend_mean(x, column), TF.adjust_contrast(x, 1.2), atol=1e-3)
    assert torch.allclose(module._blend_grey(x, column), TF.adjust_saturation(x, 1.2), atol=1e-3)
    assert torch.allclose(module._turn_hue(x, torch.full((6, 1, 1, 1), 0.05)), TF.adjust_hue(x, 0.05), atol=1e-4)
    assert torch.allclose(module._gamma(x, column), TF.adjust_gamma(x, 1.2), atol=1e-5)


def test_cotta_blur_is_torchvisions(pictures: Tensor) -> None:
    x = pictures.float() / 255
    assert torch.allclose(module._blur(x, torch.full((6,), 0.45)), TF.gaussian_blur(x, [5, 5], [0.45, 0.45]), atol=1e-5)


def test_cotta_augmentation_stays_in_range_and_near_the_image(pictures: Tensor) -> None:
    x = pictures.float() / 255
    generator = torch.Generator().manual_seed(0)
    result = cotta_augment(x, draw_cotta(6, generator), generator)
    assert result.shape == x.shape and result.min() >= 0 and result.max() <= 1
    assert 0.01 < (result - x).abs().mean() < 0.3


def test_cotta_draws_are_in_range() -> None:
    draw = draw_cotta(2000, torch.Generator().manual_seed(0))
    for value, low, high in (
        (draw.brightness, 0.6, 1.4),
        (draw.hue, -0.06, 0.06),
        (draw.scale, 0.9, 1.1),
        (draw.shift_x, -1 / 8, 1 / 8),
    ):
        assert (
            low <= value.min() < low + 0.01 * (high - low) + 1e-6
            and high - 0.01 * (high - low) - 1e-6 < value.max() <= high
        )
    assert len({tuple(order) for order in draw.order.tolist()}) == 120
