package ratelimitheader

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

type parser struct {
	header     http.Header
	now        time.Time
	date, base time.Time // the response's Date, and the time with which resets are compared; see written

	custom, standard quota           // those without a name
	named            [maxNamed]quota // the first count of them
	count            int
	partitions       []string // the partition keys, which name the bucket together if nothing else does
	state            State
}

const (
	// maxLines is the maximum number of lines of a field that are read.
	maxLines = MaxDimensions
	// maxLine is the maximum length of a line. MaxDimensions policies take about 1 KiB.
	maxLine = 8 << 10
)

// chooseLine chooses the line with the least left: a server may write two windows in two lines of each field.
func (p *parser) chooseLine(m meaning, lines []string) {
	if m.part != partRemaining {
		return
	}
	q, least := p.quota(m.name, false), int64(math.MaxInt64)
	for i, line := range lines[:min(len(lines), maxLines)] {
		n, ok := number(retryafter.Trim(line))
		if ok && n.Whole < least {
			q.line, least = i, n.Whole
		}
	}
}

// chosen returns the lines of a field from the chosen one on, if the field has so many. Then each window has a line.
func (p *parser) chosen(m meaning, lines []string) []string {
	switch m.part {
	case partLimit, partRemaining, partUsed, partReset, partResetTime:
		if i := p.quota(m.name, false).line; i < len(lines) {
			return lines[i:]
		}
	default: // each line has quotas of its own, or the part is one of the response
	}
	return lines
}

// readField reads the lines of a field. Of counts and resets the first valid line counts, from the chosen one on.
func (p *parser) readField(m meaning, lines []string) {
	lines = lines[:min(len(lines), maxLines)]
	if len(lines) > 1 {
		lines = p.chosen(m, lines)
	}
	for _, line := range lines {
		if len(line) <= maxLine && p.readLine(m, retryafter.Trim(line)) {
			return
		}
	}
}

// readLine reads a line of a field. It reports whether further lines say nothing more.
func (p *parser) readLine(m meaning, line string) (done bool) {
	switch m.part {
	case partMembers:
		p.readMembers(p.quota(m.name, false), line, "")
	case partPoints:
		p.readMembers(new(quota), line, "points")
	case partEndpoint:
		// The endpoint is the bucket: its quota must not stop requests to others.
		name := strings.ToLower(m.name)
		p.setBucket(name, false)
		p.setAll(p.quota(name, false), line)
	case partBucket, partBucketPerID:
		return p.setBucket(line, m.part == partBucketPerID)
	case partGlobal:
		p.state.Global = p.state.Global || strings.EqualFold(line, "true") || strings.EqualFold(line, "global")
	default:
		q := p.quota(m.name, false)
		done = p.set(q, m.part, line)
		if m.part == partLimit && strings.Contains(line, ";") {
			p.readMembers(q, line, "") // older drafts, and Envoy: "100, 100;w=60, 1000;w=3600"
		}
	}
	return done
}

// setBucket sets the name of the bucket. A name that is too long is ignored, because a part of it could
// be the same for two buckets. Without a name the quotas are those of the whole server.
func (p *parser) setBucket(name string, perID bool) (ok bool) {
	if name == "" || len(name) > MaxName {
		return false
	}
	p.state.Bucket, p.state.PerID = strings.Clone(name), perID
	return true
}

func (p *parser) finish() {
	if p.state.Bucket == "" {
		p.setBucket(strings.Join(p.partitions, ","), false)
	}
	p.joinOne()
	p.addNamed(true)
	p.complete(&p.custom)
	p.complete(&p.standard)
	p.custom.fill(&p.standard)
	p.standard.fill(&p.custom)
	p.addUnnamed(&p.custom, custom)
	p.addUnnamed(&p.standard, standard)
	p.addNamed(false)
	if p.state.Global {
		p.state.Bucket, p.state.PerID = "", false
	}
}

// joinOne gives the only quota of RateLimit the only policy. Cloudflare's two names differ. RateLimit is
// read before RateLimit-Policy.
func (p *parser) joinOne() {
	listed := make([]int, 0, maxNamed)
	for i := range p.count {
		if p.named[i].listed {
			listed = append(listed, i)
		}
	}
	if len(listed) == 2 {
		p.named[listed[0]].fill(&p.named[listed[1]])
	}
}

// written returns the time when the server wrote the response, by the response's Date or, without
// one, by the client's clock. Most resets are relative and do not need it.
func (p *parser) written() time.Time {
	if p.base.IsZero() {
		p.date = retryafter.Date(p.header, time.Time{})
		if p.base = p.date.UTC(); p.date.IsZero() {
			p.base = p.now.UTC()
		}
	}
	return p.base
}
