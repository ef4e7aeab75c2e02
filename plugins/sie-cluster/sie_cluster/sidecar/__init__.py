"""The sidecar: pulls work, hands it to its adapter process, answers, acknowledges. It loads no model library.

A slice on its way:

    check   queue/checking.py, sidecar.py   subject, model and reply belong together, and somebody waits for it
    hold    slices.py                       until it is answered, given back or cancelled
    wait    slices.py                       until it is fetched, where it is offered, and its config is there
    choose  adapter/dispatching.py          whose turn it is, once the adapter process has room
    send    adapter/link.py                 to the adapter process, which tells of itself by `AdapterListener`
    answer  queue/results.py                to its gateway; the message is acknowledged behind the result
"""
