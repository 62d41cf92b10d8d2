"""The public names of the library."""

PUBLIC = {
    "Cascade": ("cascadetta_lib.models", "Cascade"),
    "METHODS": ("cascadetta_lib.methods", "METHODS"),
    "adapt": ("cascadetta_lib.methods", "adapt"),
    "evaluate": ("cascadetta_lib.evaluation.evaluator", "evaluate"),
    "meta_gradient": ("cascadetta_lib.training.meta", "meta_gradient"),
}
"""The module and the attribute behind each public name. A module is imported when its name is first
used, because importing takes seconds.
"""
