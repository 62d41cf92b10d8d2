"""Evaluate a method.

evaluator.py: the loop that runs a method over a stream
metrics.py: E, A and F
cost.py: the work and the memory of a step
alarm.py: an alarm for collapse, which needs no labels
source_agreement.py: how often the method predicts the class that the source model predicts
distance.py: how far the parameters have moved
batch_variance.py: how far a batch's variance is from the whole domain's
"""
