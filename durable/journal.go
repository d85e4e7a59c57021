package durable

// Journal is what a store keeps of an intent beside its record, the oldest first.
type Journal struct {
	Attempts []Attempt
	Letters  []DeadLetter
}

// Add applies a change.
func (j *Journal) Add(c *Change) {
	if c.StartedAttempt != nil {
		j.Attempts = append(j.Attempts, *c.StartedAttempt)
	}
	for i := range j.Attempts {
		a, ended := &j.Attempts[i], c.FinishedAttempt
		if ended != nil && a.Generation == ended.Generation {
			a.FinishedAt, a.Class, a.Code = ended.FinishedAt, ended.Class, ended.Code
			a.Status, a.Reference, a.Error = ended.Status, ended.Reference, ended.Error
		}
		if c.Erased {
			a.Error = ""
		}
	}
	for i := range j.Letters {
		l, closed := &j.Letters[i], c.Resolved
		if closed != nil && l.Number == closed.Number {
			l.RedrivenAt, l.By, l.Note = closed.RedrivenAt, closed.By, closed.Note
		}
		if c.Erased && l.Note != NoteErased {
			l.Note = ""
		}
	}
	if c.DeadLettered != nil {
		j.Letters = append(j.Letters, *c.DeadLettered)
	}
}
