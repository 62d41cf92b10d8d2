"""tab:text: the main study on text."""

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.main_table import MainTable


@exhibit
class MainText(MainTable):
    name = "main_text"
    place = 30
    label = "tab:text"
    title = "Text"
    question = "How do the methods compare on reviews of other products?"
    modality = "text"
