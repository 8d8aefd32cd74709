"""The time that a launch would take on a GPU, from what the PTX machine counted, the machine code and a device model.

Nothing here runs a kernel. `workbench.analysis.prediction.predict.predict` is the model; its constants and their
sources stand in that module.
"""
