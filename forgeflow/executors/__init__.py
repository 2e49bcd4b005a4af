"""How a run is executed.  An executor gets a claimed run and answers with its Ending; it never touches the queue.

May import errors, domain, config, log, process, functions and the row types of store.
"""
