package ratelimitheader

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// parser builds a State from one header.
type parser struct {
	header     http.Header
	now        time.Time
	date, base time.Time // the response's Date, and the time with which resets are compared; see written

	custom, standard quota
	quotas           []quota         // the others, in the order of form and name
	lists            [lists][]string // the lines of the fields with lists
	bucketRank       uint8
	state            State
}

// read reads a field, or keeps its lines until all fields are read.
func (p *parser) read(m meaning, lines []string) {
	switch m.part {
	case partList, partPolicies, partPoints, partPointPolicies:
		p.lists[m.part] = lines
	case partBucket, partBucketPerID:
		p.readBucket(m, lines)
	case partGlobal:
		for line := range readable(lines) {
			value := strings.ToLower(strings.Trim(line, " \t"))
			p.state.Global = p.state.Global || value == "true" || value == "global"
		}
	default:
		p.readPart(m, lines)
	}
}

// readBucket reads a name of the bucket.
func (p *parser) readBucket(m meaning, lines []string) {
	if m.rank < p.bucketRank {
		return
	}
	for line := range readable(lines) {
		// A name that is too long is ignored: a part of it could be the same for two
		// buckets. Without a name the quotas are those of the whole server, which is
		// the careful interpretation.
		if name := strings.Trim(line, " \t"); name != "" && len(name) <= MaxName {
			p.bucketRank = m.rank + 1
			p.state.Bucket, p.state.PerID = strings.Clone(name), m.part == partBucketPerID
			return
		}
	}
}

// finish sets the state, after all fields are read.
func (p *parser) finish() {
	p.addPair()
	endpoints, endpoint := 0, ""
	for i := range p.quotas {
		q := &p.quotas[i]
		q.complete()
		q.name = strings.ToLower(q.name)
		switch q.form {
		case formAlone:
			p.addUnnamed(q)
			continue
		case formNamed, formAnthropic:
			q.costed = costedName(q.name)
		case formZendesk:
			endpoints, endpoint = endpoints+1, q.name[:min(len(q.name), MaxName)]
		case formCustom, formStandard, formOther, formList: // their names say nothing
		}
		p.add(q)
	}
	if endpoints == 1 && p.bucketRank == 0 {
		// The endpoint is the bucket: its quota must not stop requests to others.
		p.state.Bucket = endpoint
	}
	p.addList(p.lists[partPoints], policiesIn(p.lists[partPointPolicies]), true)
	if p.state.Global {
		p.state.Bucket, p.state.PerID = "", false
	}
	if slices.ContainsFunc(p.state.Dimensions, func(d Dimension) bool { return !d.Instant.IsZero() }) {
		p.state.Date = p.date
	}
}

// addPair adds the quotas that RateLimit and RateLimit-Policy name, and the unnamed ones of
// X-RateLimit- and RateLimit-. If these two differ they are two quotas, such as a gateway's
// and its backend's; otherwise each completes the other.
func (p *parser) addPair() {
	custom, fields := &p.custom, &p.standard
	custom.complete()
	custom.join(custom.policies())
	policies := policiesIn(p.lists[partPolicies])
	standard, isList := p.addList(p.lists[partList], policies, false) // a dictionary comes before the three fields
	if standard.remaining < 0 {
		standard.remaining = fields.remaining
	}
	standard.fill(fields)
	if !isList { // otherwise the policies belong to the named dimensions
		standard.join(append(fields.policies(), policies...))
	}
	before := standard
	standard.fill(custom)
	custom.fill(&before)
	p.addUnnamed(custom)
	p.addUnnamed(&standard)
}
