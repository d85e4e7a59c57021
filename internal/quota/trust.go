package quota

// trust says whether the quota is believed.
type trust struct {
	standing standing
	more     bool  // a response has shown more than 0, or a limit of 1: without that, a 0 is believed for a window
	claimed  bool  // the newest response says that nothing remains
	proof    proof // that such a claim was true
}

// standing tells whether a dimension counts. One that is not followed is ignored.
type standing uint8

const (
	followed standing = iota
	silent            // no response of its window shows it: ignored until one does
	refuted           // successes contradict it: ignored until a rejection shows it
)

// proof is what has shown that a count of 0 is true.
type proof uint8

const (
	unproven          proof = iota
	provenByReset           // it refilled the quota as it had said
	provenByRejection       // of a request
)

// silence ignores the quota until a response shows it.
func (t *trust) silence() {
	if t.standing == followed {
		t.standing = silent
	}
}
