"""A TensorBoard that does not fit its own dependencies, as a version of protobuf may leave it."""
raise TypeError("Descriptors cannot be created directly.")
