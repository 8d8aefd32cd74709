"""Prediction of a launch's time on a GPU from the PTX machine's counts, the machine code and a device model.

Nothing here runs a kernel. `workbench.analysis.prediction.predict.predict` is the model; its constants and their
sources stand in that module.
"""
