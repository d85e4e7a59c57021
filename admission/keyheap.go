package admission

import "container/heap"

// keyHeap is a heap of keys that can be moved in it.
type keyHeap struct {
	keys   []*keyQueue
	before func(a, b *keyQueue) bool
	which  int // the index of this heap in keyQueue.place
}

// Len implements heap.Interface.
func (h *keyHeap) Len() int { return len(h.keys) }

// Less implements heap.Interface.
func (h *keyHeap) Less(i, j int) bool { return h.before(h.keys[i], h.keys[j]) }

// Swap implements heap.Interface.
func (h *keyHeap) Swap(i, j int) {
	h.keys[i], h.keys[j] = h.keys[j], h.keys[i]
	h.keys[i].place[h.which], h.keys[j].place[h.which] = i+1, j+1
}

// Push implements heap.Interface.
func (h *keyHeap) Push(key any) {
	k, _ := key.(*keyQueue)
	h.keys = append(h.keys, k)
	k.place[h.which] = len(h.keys)
}

// Pop implements heap.Interface.
func (h *keyHeap) Pop() any {
	last := len(h.keys) - 1
	k := h.keys[last]
	h.keys[last] = nil
	h.keys = h.keys[:last]
	k.place[h.which] = 0
	return k
}

// top returns the first key, or nil.
func (h *keyHeap) top() *keyQueue {
	if len(h.keys) == 0 {
		return nil
	}
	return h.keys[0]
}

// set moves a key to its place in the heap, or removes it.
func (h *keyHeap) set(k *keyQueue, member bool) {
	switch place := k.place[h.which]; {
	case member && place > 0:
		heap.Fix(h, place-1)
	case member:
		heap.Push(h, k)
	case place > 0:
		heap.Remove(h, place-1)
	}
}
