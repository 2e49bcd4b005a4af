"""The master of a node: it forks, waits, counts time and kills.

It opens no database connection, starts no thread and runs no job code, so nothing that its children break can break
it. Whatever may block lives in a child; the node's own database work is the courier's, on the master's orders. May
import the modules of its children for their `main` alone.
"""
