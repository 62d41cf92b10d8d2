"""AugMix against Pillow's operations, crop and flip one by one, and CoTTA's augmented copies."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import seeded
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import functional as TF

from cascadetta_lib.augment import image as module
from cascadetta_lib.augment.image import (
    COTTA_RANGES,
    OPERATIONS,
    PADDING,
    augmix,
    cotta_copies,
    crop_and_flip,
)


@pytest.fixture
def pictures() -> Tensor:
    """Smooth random pictures with a different range each, uint8 (6, 3, 32, 32)."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 3, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (32, 32), mode="bicubic").clamp(0, 1)
    return (smooth * torch.linspace(90, 255, 6).view(-1, 1, 1, 1)).to(torch.uint8)


def one_operation(pictures: Tensor, name: str, magnitude: float) -> Tensor:
    """The pictures after that operation alone."""
    x = pictures.float()
    module.apply_operations(
        x, torch.full((len(x),), OPERATIONS.index(name)), torch.full((len(x),), magnitude)
    )
    return x


def by_pillow(pictures: Tensor, function: Any) -> Tensor:
    arrays = [np.asarray(function(Image.fromarray(p.permute(1, 2, 0).numpy()))) for p in pictures]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)


def affine(*matrix: float) -> Any:
    return lambda image: image.transform(
        (32, 32), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
    )


@pytest.mark.parametrize(
    ("name", "function", "tolerance"),
    [
        ("autocontrast", ImageOps.autocontrast, 1),
        ("equalize", ImageOps.equalize, 0),
        ("posterize", lambda image: ImageOps.posterize(image, 4), 0),
        ("solarize", lambda image: ImageOps.solarize(image, 256 - 51), 0),
        ("shear_x", affine(1, 0.3 * 0.2, -0.3 * 0.2 * 15.5, 0, 1, 0), 2),
        ("shear_y", affine(1, 0, 0, 0.3 * 0.2, 1, -0.3 * 0.2 * 15.5), 2),
        ("translate_x", affine(1, 0, 2, 0, 1, 0), 2),  # whole pixels of 32 / 3 * 0.2
        ("translate_y", affine(1, 0, 0, 0, 1, 2), 2),
    ],
)
def test_operations_are_pillows(pictures: Tensor, name: str, function: Any, tolerance: int) -> None:
    difference = (one_operation(pictures, name, 0.2) - by_pillow(pictures, function)).abs()
    # Pillow leaves a pixel black whose source lies over the border, we blend it: compare the
    # inside.
    assert (difference if tolerance < 2 else difference[:, :, 6:26, 6:26]).max() <= tolerance


def test_autocontrast_reaches_white() -> None:
    lowest, highest = torch.meshgrid(
        torch.arange(0.0, 100), torch.arange(101.0, 256), indexing="ij"
    )
    pairs = torch.stack([lowest, highest], -1).view(-1, 1, 1, 2).repeat(1, 3, 1, 1)
    assert set(one_operation(pairs, "autocontrast", 0.2).flatten().tolist()) == {0.0, 255.0}


def test_rotation_is_by_30_degrees_times_the_magnitude(pictures: Tensor) -> None:
    ours = one_operation(pictures, "rotate", 0.3)[:, :, 8:24, 8:24]
    angles = {
        a: TF.rotate(pictures, a, TF.InterpolationMode.BILINEAR)[:, :, 8:24, 8:24].float()
        for a in (-9, 0, 9)
    }
    errors = {angle: (ours - turned).abs().mean().item() for angle, turned in angles.items()}
    assert min(errors[-9], errors[9]) < 1 < errors[0]


@pytest.mark.parametrize("severity", [3.0, -1.0])
def test_draws_are_in_range(monkeypatch: pytest.MonkeyPatch, severity: float) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def watch(x: Tensor, operation: Tensor, magnitude: Tensor) -> None:
        seen.append((operation, magnitude))
        x.fill_(255)

    # The images do not show which operations were drawn.
    monkeypatch.setattr(module, "apply_operations", watch)
    mixed = augmix(
        torch.zeros(3000, 3, 2, 2, dtype=torch.uint8),
        torch.Generator().manual_seed(0),
        severity=severity,
    )
    assert abs(mixed.float().mean() / 255 - 0.5) < 0.02, (
        "the share of the chains, whose weights sum to 1"
    )
    operation, magnitude = (torch.stack(part) for part in zip(*seen, strict=True))
    assert operation.unique().tolist() == list(range(-1, len(OPERATIONS)))
    acting = (operation >= 0).float().mean(1)
    assert acting[0] == 1 and torch.allclose(acting, torch.tensor([1, 2 / 3, 1 / 3]), atol=0.02), (
        "depth in 1..3"
    )
    colour = magnitude[operation < 4]
    turned = magnitude[operation >= 4]
    low, high = sorted((0.01, severity / 10))
    assert low <= colour.min() < colour.max() <= high and colour.mean() == pytest.approx(
        (low + high) / 2, abs=0.002
    )
    assert 0.45 < (turned > 0).float().mean() < 0.55 and abs(turned.mean()) < 0.01, "to both sides"


def test_shared_is_one_mixture_for_the_batch(pictures: Tensor) -> None:
    same = pictures[:1].expand(6, -1, -1, -1)
    shared = augmix(same, torch.Generator().manual_seed(1), severity=3, shared=True)
    assert all(torch.equal(shared[0], other) for other in shared)
    alone = augmix(same, torch.Generator().manual_seed(1), severity=3)
    assert any(not torch.equal(alone[0], other) for other in alone)


def test_crop_and_flip_one_by_one() -> None:
    """Every pixel is numbered, so that a crop shows where it was taken from."""
    x = torch.arange(1, 1 + 32 * 32).view(1, 1, 32, 32).expand(2000, 3, -1, -1)
    result = crop_and_flip(x, torch.Generator().manual_seed(3), black=0)
    padded = torch.nn.functional.pad(x[0], (PADDING,) * 4)
    seen = set()
    for image in result:
        flip = bool((image[0, 16, 16] > image[0, 16, 17]).item())
        image = image.flip(2) if flip else image
        row, column = divmod(int(image[0, 16, 16]) - 1, 32)
        top = row + PADDING - 16
        left = column + PADDING - 16
        assert torch.equal(image, padded[:, top : top + 32, left : left + 32])
        seen.add((top, left, flip))
    assert len(seen) > 0.99 * 2 * (2 * PADDING + 1) ** 2, "all places, mirrored or not"
    white = crop_and_flip(torch.ones(50, 3, 8, 8), torch.Generator().manual_seed(0), black=-1.0)
    assert white.unique().tolist() == [-1, 1], "the border has the value asked for"


@pytest.mark.parametrize("value_range", [(-1.0, 1.0), (0.0, 1.0)])
def test_cotta_copies_stay_in_range_and_near_the_image(
    pictures: Tensor, value_range: tuple[float, float]
) -> None:
    black, white = value_range
    x = pictures.float() / 255 * (white - black) + black
    copies, again = (
        list(cotta_copies(x, 8, torch.Generator().manual_seed(0), value_range)) for _ in range(2)
    )
    assert len(copies) == 8 and all(torch.equal(*pair) for pair in zip(copies, again, strict=True))
    for copy in copies:
        assert copy.shape == x.shape and copy.min() >= black and copy.max() <= white
        assert 0.01 < ((copy - x).abs().mean() / (white - black)) < 0.3
    assert not torch.allclose(copies[0], copies[1], atol=0.05)


def test_the_images_of_a_copy_share_all_but_the_noise(pictures: Tensor) -> None:
    x = pictures[-1:].float().expand(4, -1, -1, -1) / 255
    (copy,) = cotta_copies(x, 1, torch.Generator().manual_seed(0), (0.0, 1.0))
    difference = copy[0] - copy[1]
    assert not torch.equal(copy[0], copy[1]) and difference.std() < 2**0.5 * 0.0055


def unchanged(**changes: float) -> dict[str, float]:
    """A draw that leaves the image as it is, but for `changes`."""
    neutral = dict.fromkeys(COTTA_RANGES, 0.0) | dict.fromkeys(
        ("brightness", "contrast", "saturation"), 1.0
    )
    return neutral | {"gamma": 1.0, "scale": 1.0, "sigma": 0.001} | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, lambda x: x),
        ({"brightness": 1.2}, lambda x: TF.adjust_brightness(x, 1.2)),
        ({"contrast": 0.8}, lambda x: TF.adjust_contrast(x, 0.8)),
        ({"saturation": 1.4}, lambda x: TF.adjust_saturation(x, 1.4)),
        *(({"hue": hue}, lambda x, hue=hue: TF.adjust_hue(x, hue)) for hue in (-0.06, 0.05)),
        ({"gamma": 0.8}, lambda x: TF.adjust_gamma(x, 0.8)),
        ({"sigma": 0.45}, lambda x: TF.gaussian_blur(x, [5, 5], [0.45, 0.45])),
        ({"right": 1 / 8}, lambda x: torch.cat([x[..., 4:], x[..., -1:].expand(-1, -1, -1, 4)], 3)),
        (
            {"down": -1 / 8},
            lambda x: torch.cat([x[..., :1, :].expand(-1, -1, 4, -1), x[..., :-4, :]], 2),
        ),
    ],
)
def test_each_part_of_a_cotta_copy(
    pictures: Tensor, changes: dict[str, float], expected: Any
) -> None:
    x = pictures.float() / 255
    found = module.cotta_copy(x, unchanged(**changes), [0, 1, 2, 3, 4], False)
    assert torch.allclose(found, expected(x), atol=1e-5)


@pytest.mark.parametrize("turns", [-0.06, -0.01, 0.0, 0.06])
def test_the_hue_of_every_kind_of_colour_is_turned_as_by_torchvision(turns: float) -> None:
    """On all colours of five levels a channel: greys, black, white, two channels alike, each order
    of the three.
    """
    levels = torch.linspace(0, 1, 5)
    colours = torch.cartesian_prod(levels, levels, levels).T.reshape(1, 3, 5, 25)
    assert torch.allclose(module.turn_hue(colours, turns), TF.adjust_hue(colours, turns), atol=1e-6)


@pytest.mark.parametrize("mirror", [False, True])
def test_a_cotta_copy_moves_as_by_the_release(pictures: Tensor, mirror: bool) -> None:
    """Padding by the edge to twice the size, RandomAffine, blur, crop and mirror, by torchvision;
    inside the border.
    """
    x = pictures.float() / 255
    drawn = unchanged(angle=-13.0, right=0.1, down=-0.07, scale=0.93, sigma=0.4)
    padded = TF.pad(x, [16], padding_mode="edge")
    moved = TF.affine(padded, 13.0, [-3, 2], 0.93, [0.0], TF.InterpolationMode.BILINEAR)
    expected = TF.center_crop(TF.gaussian_blur(moved, [5, 5], [0.4, 0.4]), [32, 32])
    expected = TF.hflip(expected) if mirror else expected
    found = module.cotta_copy(x, drawn, [], mirror)
    assert torch.allclose(found[..., 2:-2, 2:-2], expected[..., 2:-2, 2:-2], atol=1e-5)


def test_the_order_of_cotta_s_colours_counts(pictures: Tensor) -> None:
    x = pictures.float() / 255
    drawn = unchanged(brightness=0.6, gamma=0.7)
    brightness_first = module.cotta_copy(x, drawn, [0, 1, 2, 3, 4], False)
    assert torch.allclose(
        brightness_first, TF.adjust_gamma(TF.adjust_brightness(x, 0.6), 0.7), atol=1e-4
    )
    gamma_first = module.cotta_copy(x, drawn, [4, 1, 2, 3, 0], False)
    assert torch.allclose(
        gamma_first, TF.adjust_brightness(TF.adjust_gamma(x, 0.7), 0.6), atol=1e-4
    )


@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y"])
def test_an_image_that_is_not_square_is_rotated_and_sheared_as_a_square_one(name: str) -> None:
    """A square picture inside a black frame of twice the width, or of twice the height."""
    square = torch.zeros(2, 3, 32, 32)
    square[..., 10:22, 10:22] = torch.rand(2, 3, 12, 12, generator=seeded(0)) * 200
    wide = torch.nn.functional.pad(square, (16, 16, 0, 0))
    high = torch.nn.functional.pad(square, (0, 0, 16, 16))
    expected = one_operation(square, name, 0.7)
    assert torch.equal(one_operation(wide, name, 0.7)[..., 16:48], expected)
    assert torch.equal(one_operation(high, name, 0.7)[..., 16:48, :], expected)
