"""Pack the networks that a profile has trained into weights/: `./run_all.sh python workflow/pack.py [PROFILE]`.

A network that is there already stays. The table in weights/README.md is written anew from all cards.
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pandas as pd

from cascadetta_lib import networks
from cascadetta_lib.data.base import write_atomically
from cascadetta_lib.objectives import OBJECTIVES
from cascadetta_lib.settings import load_profile
from cascadetta_lib.study import Study
from exhibits.rendering import markdown
from exhibits.style import number

BEGIN = "<!-- The table below is written by workflow/pack.py. -->\n"


def table() -> pd.DataFrame:
    """A row a shipped network, from its card."""
    cards = [networks.read_card(path) for path in sorted(networks.SHIPPED.glob("*.safetensors"))]
    rows = {
        f"{card.objective}-{card.seed}": {
            "epochs": str(card.training.epochs),
            "precision": "float32" if OBJECTIVES[card.objective].meta else card.training.precision,
            "clean error (%)": f"{card.clean_error:.2f}",
            "with batch statistics (%)": f"{card.clean_error_batch_statistics:.2f}",
            "AdaBN, corrupted (%)": number(math.nan if card.corrupted_error is None else card.corrupted_error),
            "minutes": f"{card.provenance['seconds'] / 60:.0f}",
            "code": card.provenance["code_revision"],
            "SHA-256": card.weights_sha256[:12],
        }
        for card in cards
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("network")


def main(profile: str = "networks") -> None:
    """Pack every network of the profile, at each of its seeds, that has been trained."""
    study = Study(load_profile(profile))
    for seed in study.settings.seeds:
        for objective in study.objectives:
            request = study.at_seed(seed).checkpoint_request(objective)
            trained = study.store.folder / "checkpoints" / request.key(study.dataset.fingerprint)
            if (networks.SHIPPED / f"{objective}-{seed}.safetensors").exists() or not trained.exists():
                continue
            found = study.at_seed(seed).checkpoint(objective)
            assert found.history is not None
            asked = {name: getattr(request, name) for name in ("network", "objective", "training", "seed", "options")}
            card = asked | {"provenance": found.provenance}
            print("packed", networks.pack(networks.SHIPPED, found.model, found.history, study.dataset, **card).name)
    readme = networks.SHIPPED / "README.md"
    text = readme.read_text(encoding="utf-8").partition(BEGIN)[0] + BEGIN + "\n" + markdown(table()) + "\n"
    write_atomically(readme, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    main(*sys.argv[1:])
