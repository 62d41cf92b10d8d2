"""The parameters of 0.1.0 that have new names. docs/settings-renamed.md lists them."""

RENAMED = {
    "image_architecture": "image_network_architecture",
    "image_batch_sizes": "image_ablation_batch_sizes",
    "image_block": "image_network_block",
    "image_depth": "image_network_depth",
    "image_entropy_weight": "image_training_entropy_weight",
    "image_epochs": "image_training_epochs",
    "image_final_learning_rate": "image_training_final_learning_rate",
    "image_inner_learning_rate_ratio": "image_training_inner_learning_rate_ratio",
    "image_inner_parameters": "image_training_inner_parameters",
    "image_iterations": "image_training_iterations",
    "image_learning_rate": "image_training_learning_rate",
    "image_learning_rate_batch_sizes": "image_ablation_rate_batch_sizes",
    "image_learning_rates": "image_ablation_learning_rates",
    "image_main_logits": "image_network_main_logits",
    "image_optimizer": "image_training_optimizer",
    "image_outer_loss": "image_training_outer_loss",
    "image_precision": "image_training_precision",
    "image_schedule": "image_training_schedule",
    "image_weight_decay": "image_training_weight_decay",
    "image_width": "image_network_width",
    "speech_entropy_weight": "speech_training_entropy_weight",
    "speech_epochs": "speech_training_epochs",
    "speech_final_learning_rate": "speech_training_final_learning_rate",
    "speech_inner_learning_rate_ratio": "speech_training_inner_learning_rate_ratio",
    "speech_inner_parameters": "speech_training_inner_parameters",
    "speech_iterations": "speech_training_iterations",
    "speech_learning_rate": "speech_training_learning_rate",
    "speech_optimizer": "speech_training_optimizer",
    "speech_outer_loss": "speech_training_outer_loss",
    "speech_precision": "speech_training_precision",
    "speech_schedule": "speech_training_schedule",
    "speech_weight_decay": "speech_training_weight_decay",
    "text_entropy_weight": "text_training_entropy_weight",
    "text_epochs": "text_training_epochs",
    "text_final_learning_rate": "text_training_final_learning_rate",
    "text_hidden": "text_network_hidden",
    "text_inner_learning_rate_ratio": "text_training_inner_learning_rate_ratio",
    "text_inner_parameters": "text_training_inner_parameters",
    "text_iterations": "text_training_iterations",
    "text_learning_rate": "text_training_learning_rate",
    "text_optimizer": "text_training_optimizer",
    "text_outer_loss": "text_training_outer_loss",
    "text_precision": "text_training_precision",
    "text_schedule": "text_training_schedule",
    "text_weight_decay": "text_training_weight_decay",
}
"""The new name of each old name."""


def renamed_table() -> str:
    """Return docs/settings-renamed.md: old and new names as a table in Markdown."""
    lines = [f"| `{old}` | `{new}` |" for old, new in RENAMED.items()]
    head = "# Parameters with another name since 0.1.0\n\n| 0.1.0 | now |\n|---|---|\n"
    return head + "\n".join(lines) + "\n"
