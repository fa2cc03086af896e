package watchdog

// holdHeap is a container/heap of holds by when they are due. Every hold knows
// its index.
type holdHeap []*Hold

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, j int) bool { return h[i].due < h[j].due }

func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *holdHeap) Push(x any) {
	one := x.(*Hold)
	*h = append(*h, one)
	one.index = len(*h)
}

func (h *holdHeap) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	one.index = 0
	return one
}
