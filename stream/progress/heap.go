package progress

// The heap of active tasks knows each task's place, so a watermark that moves costs one walk up or down.

func (b *Book) less(i, j int32) bool {
	return b.tasks[b.active[i]].watermarkMs < b.tasks[b.active[j]].watermarkMs
}

func (b *Book) swap(i, j int32) {
	b.active[i], b.active[j] = b.active[j], b.active[i]
	b.tasks[b.active[i]].place = i
	b.tasks[b.active[j]].place = j
}

// enter puts a task into the heap, or moves it to its place if it is there. Its watermark may only have grown.
func (b *Book) enter(number int32) {
	t := &b.tasks[number]
	if t.place < 0 {
		t.place = int32(len(b.active))
		b.active = append(b.active, number)
		b.up(t.place)
		return
	}
	b.down(t.place)
}

// leave takes a task out of the heap, if it is there.
func (b *Book) leave(number int32) {
	place := b.tasks[number].place
	if place < 0 {
		return
	}
	last := int32(len(b.active) - 1)
	b.swap(place, last)
	b.active = b.active[:last]
	b.tasks[number].place = -1
	if place < last {
		b.up(place)
		b.down(b.tasks[b.active[place]].place)
	}
}

func (b *Book) up(i int32) {
	for i > 0 && b.less(i, (i-1)/2) {
		b.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (b *Book) down(i int32) {
	for {
		child := 2*i + 1
		if child >= int32(len(b.active)) {
			return
		}
		if right := child + 1; right < int32(len(b.active)) && b.less(right, child) {
			child = right
		}
		if !b.less(child, i) {
			return
		}
		b.swap(i, child)
		i = child
	}
}
