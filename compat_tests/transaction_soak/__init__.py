"""`make soak-transactions MINUTES=n`: transactions of stock clients while brokers and clients are killed.

Four broker processes and two controllers, attacked as by `compat_tests.soak`: partitions, groups and transactional
ids change their leader every few seconds. Consume–transform–produce loops copy one topic, two members of a group for
each of Java's clients (3.9 and 4.3), librdkafka and franz-go (GroupTransactSession); the first member is static.
Owners move money between accounts in a bank, in partitions of their own. Every fifth transaction is aborted on
purpose. Clients are killed, too, most of them amid a transaction, and replaced by a process with the same
transactional id; or they are paused, and go on when their successor has it. Some transactions are left to the
coordinator's time-out. Then the faults end, and

- all inputs are copied without a pause of a minute, and each of them exactly once, as read_committed sees it;
- of each transaction all records are visible, or none: all if its commit was acknowledged, none if its abort was;
- nobody writes after its successor: no record of an earlier process follows one of a later in any partition;
- at every read_committed snapshot of the bank, also during the attack, all money is there, and of each owner all
  transfers but the newest are whole; last stable offsets never go back;
- an owner that has fenced its predecessor finds no half transfer, and its own accounts right;
- a paused owner is fenced when it goes on, and no producer is fenced that has no successor;
- no transaction is open, every partition is stable up to its end, `kafka-transactions find-hanging` finds nothing;
- the copies of all partitions are equal, also of `__transaction_state`; no broker has logged an internal error.

Two things are counted instead, as they are their library's: librdkafka sleeps for good when the coordinator of its
group dies at the wrong moment (the process then ends itself), and franz-go gives a session up when it cannot
connect.
"""
