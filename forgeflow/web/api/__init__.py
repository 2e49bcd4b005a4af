"""The REST handlers: read the request, call one function of `service`, write the answer."""
