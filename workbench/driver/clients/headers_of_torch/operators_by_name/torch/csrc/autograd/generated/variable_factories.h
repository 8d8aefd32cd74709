// Leaves out torch's functions that make tensors; at's of the same names, which torch uses, do not track gradients.
#pragma once
