package durable

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// DeadLetters implements Store. A page costs as much as all of them.
func (m *Memory) DeadLetters(ctx context.Context, filter Filter, after *DeadLetter, limit int) ([]DeadLetter, error) {
	return locked(ctx, m, filter.Validate(), func(time.Time) ([]DeadLetter, error) { return m.deadLetters(&filter, after, limit), nil })
}

func (m *Memory) deadLetters(filter *Filter, after *DeadLetter, limit int) (letters []DeadLetter) {
	for _, row := range m.rows {
		for i := range row.Letters {
			if l := &row.Letters[i]; filter.Matches(l) {
				letters = append(letters, *l)
			}
		}
	}
	return pageOf(letters, (*DeadLetter).Compare, filter.NewestFirst, after, limit)
}

// Intents implements Store. A page costs as much as all of them.
func (m *Memory) Intents(ctx context.Context, filter Filter, after *Record, limit int) ([]Record, error) {
	return locked(ctx, m, filter.Validate(), func(time.Time) ([]Record, error) {
		var records []Record
		for _, row := range m.rows {
			if r := row.Record; filter.MatchesIntent(&r) {
				r.Payload, r.Result = nil, nil
				records = append(records, r)
			}
		}
		return pageOf(records, (*Record).Compare, filter.NewestFirst, after, limit), nil
	})
}

// pageOf sorts all and returns up to limit of them that are behind after.
func pageOf[T any](all []T, compare func(a, b *T) int, newestFirst bool, after *T, limit int) []T {
	order := func(a, b T) int { return compare(&a, &b) }
	if newestFirst {
		order = func(a, b T) int { return compare(&b, &a) }
	}
	if after != nil {
		all = slices.DeleteFunc(all, func(each T) bool { return order(each, *after) <= 0 })
	}
	slices.SortFunc(all, order)
	return all[:min(len(all), max(limit, 0))]
}

// Counts implements Store.
func (m *Memory) Counts(ctx context.Context, states []State) ([]Count, error) {
	filter := Filter{States: states}
	return locked(ctx, m, filter.Validate(), func(time.Time) ([]Count, error) {
		counted := make(map[Count]int)
		for _, row := range m.rows {
			if filter.MatchesIntent(&row.Record) {
				counted[Count{State: row.State, Gateway: row.Gateway, Scope: row.ID.Scope}]++
			}
		}
		counts := make([]Count, 0, len(counted))
		for c, n := range counted {
			c.N = n
			counts = append(counts, c)
		}
		slices.SortFunc(counts, Count.Compare)
		return counts, nil
	})
}

// Stats implements Store.
func (m *Memory) Stats(ctx context.Context) (Stats, error) {
	return locked(ctx, m, nil, func(now time.Time) (Stats, error) {
		stats := Stats{Now: now, States: make(map[State]int)}
		for _, row := range m.rows {
			state := row.State
			if state.Held() && !now.Before(m.workers[row.Worker].expires) {
				state = StateUnknown
			}
			stats.States[state]++
			if state == StateDead && row.InDoubt {
				stats.DeadInDoubt++
			}
			if row.State.Claimable() && !now.Before(row.NextAt) {
				stats.Due++
				if stats.Oldest.IsZero() || row.NextAt.Before(stats.Oldest) {
					stats.Oldest = row.NextAt
				}
			}
		}
		for _, lease := range m.workers {
			if now.Before(lease.expires) {
				stats.Workers++
			}
		}
		return stats, nil
	})
}

// AddJob implements Store.
func (m *Memory) AddJob(ctx context.Context, job Job) (Job, error) {
	return locked(ctx, m, nil, func(now time.Time) (Job, error) {
		job, filter, err := job.Opened(now)
		if err != nil {
			return Job{}, err
		}
		for _, other := range m.jobs {
			if _, text, err := other.Opened(other.CreatedAt); other.FinishedAt.IsZero() && text == filter && err == nil {
				return other, nil
			}
		}
		job.ID = JobID(strconv.Itoa(len(m.jobs) + 1))
		m.jobs = append(m.jobs, job)
		return job, nil
	})
}

// Jobs implements Store.
func (m *Memory) Jobs(ctx context.Context, limit int) ([]Job, error) {
	return locked(ctx, m, nil, func(time.Time) ([]Job, error) {
		jobs := slices.Clone(m.jobs)
		slices.Reverse(jobs)
		return jobs[:min(len(jobs), max(limit, 0))], nil
	})
}

// CancelJob implements Store.
func (m *Memory) CancelJob(ctx context.Context, id JobID, by string) error {
	_, err := locked(ctx, m, nil, func(now time.Time) (none struct{}, _ error) {
		i := slices.IndexFunc(m.jobs, func(j Job) bool { return j.ID == id })
		if i < 0 {
			return none, ErrNotFound
		}
		return none, m.jobs[i].Cancel(by, now)
	})
	return err
}

// WorkJob implements Store.
func (m *Memory) WorkJob(ctx context.Context, limit int) (job Job, changes []Change, err error) {
	job, err = locked(ctx, m, nil, func(now time.Time) (Job, error) {
		i := slices.IndexFunc(m.jobs, func(j Job) bool { return j.FinishedAt.IsZero() })
		if i < 0 || limit <= 0 {
			return Job{}, nil
		}
		job := &m.jobs[i]
		page := m.deadLetters(&job.Filter, job.After, limit)
		changes = job.Advance(page, m.applyAll(job.Events(page, now), now), limit, now)
		return *job, nil
	})
	return job, changes, err
}
