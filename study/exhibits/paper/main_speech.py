"""tab:speech: the main study on speech."""

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.main_table import MainTable


@exhibit
class MainSpeech(MainTable):
    name = "main_speech"
    place = 40
    label = "tab:speech"
    title = "Speech"
    question = "How do the methods compare on changed recordings?"
    modality = "speech"
