"""tab:main-result: the main study on images."""

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.main_table import MainTable


@exhibit
class MainImage(MainTable):
    name = "main_image"
    place = 10
    label = "tab:main-result"
    title = "Images"
    question = "How do the methods compare on corrupted images?"
    modality = "image"
