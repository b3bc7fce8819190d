package producer

// list is an intrusive doubly linked list. An entry is in exactly one list at a time: the table's idle list, oldest
// touch first, or its partition's list of open transactions, lowest first offset first.
type list struct{ first, last *entry }

func (l *list) pushBack(e *entry) {
	e.prev, e.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}
