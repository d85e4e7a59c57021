package fleet

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

func inGroup(t *testing.T, name string) []Scenario {
	t.Helper()
	some, err := InGroups(name)
	require.NoError(t, err)
	return some
}

// No scenario is in two groups, and all but the ride, the gates and life run by default.
func TestGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range Groups() {
		for _, s := range inGroup(t, name) {
			require.False(t, seen[s.Name], "%s is in two groups", s.Name)
			seen[s.Name] = true
		}
	}
	all, err := Named("all")
	require.NoError(t, err)
	require.Len(t, seen, len(all)+len(ride())+len(gates())+len(life()))
	require.Len(t, inGroup(t, "small,ports"), len(smallFleets())+len(deadPorts()))
	for _, choose := range []func(string) ([]Scenario, error){InGroups, Named} {
		_, err := choose("small,unknown")
		require.Error(t, err)
	}
}

// Runs of a bare client are short.
func TestRunAll_returnsResultsInTheOrderOfTheRuns(t *testing.T) {
	var runs []Config
	for _, rate := range []float64{10, 1000, 100} {
		s := Scenario{Name: "x", During: time.Second, Load: Load{Rate: rate, Clients: 1}}
		runs = append(runs, configOf(t, s, "bare", Own))
	}
	var rates []float64
	RunAll(t, runs, func(r Result) { rates = append(rates, r.Scenario.Load.Rate) })
	require.Equal(t, []float64{10, 1000, 100}, rates)
}

func TestVerdictText_listsMetThenMissed(t *testing.T) {
	ours := func(group, name string, targets ...Target) Result {
		r := Result{Config: Config{Scenario: Scenario{group: group, Name: name, Targets: targets}, Peer: peers.Peer{Name: peers.Ours}, Topology: Own}}
		r.measure()
		return r
	}
	is := func(v float64) func(Result) float64 { return func(Result) float64 { return v } }
	var rows Rows
	rows.Add(ours("base", "outage", atLeast("a", is(0.5), 0.75, "%.2f"), atMost("b", is(7), 4, "%.0f").goal(), atMost("c", is(1), 2, "%.0f")))
	rows.Add(ours("ports", "dead-port-no-deadline", atMost("d", is(never.Seconds()), 12, "%.1f").inSeconds(), atLeast("e", is(2), 1, "%.0f").goal()))
	require.Equal(t, `outage                     own    met            c ≤ 2: 1
dead-port-no-deadline      own    met            e goal ≥ 1: 2
outage                     own    goal missed    b goal ≤ 4: 7, by 3
outage                     own    MISSED         a ≥ 0.75: 0.50, by 0.25
dead-port-no-deadline      own    MISSED         d ≤ 12.0: never
base          1 of 2 targets met, 0 of 1 goals
ports         0 of 1 targets met, 1 of 1 goals
all           1 of 3 targets met, 1 of 2 goals
`, rows.VerdictText())
}

// Headers of the first permitted request and of a rejection.
func TestLimiter_fieldsOfAPIs(t *testing.T) {
	for _, row := range []struct {
		api           API
		quota, burst  int
		admitted      map[string]string
		rejected      map[string]string
		rejectedLacks string
	}{
		{api: apiGitHub, quota: 1, admitted: map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1767225660"}, rejected: map[string]string{"Retry-After": "60"}},
		{api: apiZendesk, quota: 1, admitted: map[string]string{"Ratelimit-Reset": "60"}, rejected: map[string]string{"Retry-After": "60"}},
		{api: apiIETF, quota: 1, admitted: map[string]string{"Ratelimit": `"default";r=0;t=60`, "Ratelimit-Policy": `"default";q=1;w=60`}, rejected: map[string]string{"Ratelimit": `"default";r=0;t=60`}},
		{api: apiDiscord, quota: 1, admitted: map[string]string{"X-Ratelimit-Bucket": "bucket", "X-Ratelimit-Reset-After": "60.000"}, rejected: map[string]string{"X-Ratelimit-Remaining": "0"}},
		{api: apiJira, quota: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": ""}, rejected: map[string]string{"X-Ratelimit-Reset": "2026-01-01T00:01Z"}},
		{api: apiJiraDC, burst: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "0"}, rejected: map[string]string{"Retry-After": "1"}, rejectedLacks: "X-Ratelimit-Reset"},
		{api: apiOkta, burst: 1, admitted: map[string]string{"X-Ratelimit-Limit": "1000"}, rejected: map[string]string{"X-Ratelimit-Limit": "0", "X-Ratelimit-Remaining": "0"}},
		{api: apiOpenAI, burst: 1, admitted: map[string]string{"X-Ratelimit-Remaining-Requests": "9", "X-Ratelimit-Remaining-Tokens": "0"}, rejected: map[string]string{"X-Ratelimit-Reset-Tokens": "1s"}, rejectedLacks: "Retry-After"},
		{api: apiGitHubSecondary, quota: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "999"}, rejected: map[string]string{"Retry-After": "60", "X-Ratelimit-Remaining": "999"}},
		{api: apiAzure, quota: 1, admitted: map[string]string{"X-Ratelimit-Remaining": "5"}, rejected: map[string]string{"Retry-After": "1"}},
		{api: apiAnthropic, burst: 1, admitted: map[string]string{"Anthropic-Ratelimit-Requests-Remaining": "0", "Anthropic-Ratelimit-Requests-Reset": "2026-01-01T00:00:01Z"}, rejected: map[string]string{"Retry-After": "1"}},
		{api: apiShopify, burst: 1, admitted: map[string]string{"X-Shopify-Shop-Api-Call-Limit": "1/1"}, rejected: map[string]string{"Retry-After": "2.0"}},
		{api: apiRejections, burst: 1, admitted: map[string]string{"X-Ratelimit-Limit": ""}, rejected: map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Reset": "1"}},
	} {
		t.Run(string(row.api), func(t *testing.T) {
			m := newLimiter(Limit{API: row.api, Quota: row.quota, Window: time.Minute, Rate: float64(row.burst), Burst: row.burst})
			check := func(want map[string]string, h http.Header) {
				for name, value := range want {
					require.Equal(t, value, h.Get(name), name)
				}
			}
			h, ok := m.admit(Epoch())
			require.True(t, ok)
			check(row.admitted, h)
			h, ok = m.admit(Epoch())
			require.False(t, ok)
			check(row.rejected, h)
			if row.rejectedLacks != "" {
				require.Empty(t, h.Get(row.rejectedLacks))
			}
			_, ok = m.admit(Epoch().Add(time.Minute))
			require.True(t, ok, "a minute later")
		})
	}
}

// The period includes its start and excludes its end.
func TestSuccessBetween(t *testing.T) {
	r := Result{calls: []*Call{
		{at: 0, success: true}, {at: 1, success: true}, {at: 2}, {at: 3}, {at: 4, success: true},
	}}
	require.InDelta(t, 1.0/3, r.successBetween(1, 4), 1e-9)
	require.InDelta(t, 1, r.successBetween(5, 9), 1e-9, "of no calls")
}

// A bare client's calls fail during the outage, with all four failures, and not before or
// after it.
func TestBlips_failOnlyDuringTheOutage(t *testing.T) {
	r := Run(t, configOf(t, blip(35, time.Second, callDeadline, false), "bare", Own))
	require.Zero(t, r.During.Succeeded)
	require.Equal(t, r.Offered-r.During.Calls, r.Succeeded)
	require.Greater(t, r.After.Calls, 1200)
	require.InDelta(t, 0.75, shown(Row{{Config: r.Config, During: Share{Calls: 4, Succeeded: 3}}}), 0, "the page shows the calls during the outage")
}

func TestMetSuccess_countsOnlyItsPathDuringTheOutage(t *testing.T) {
	r := Result{Config: Config{Scenario: Scenario{Before: 10, During: 10}}, calls: []*Call{
		{at: 9, path: "/a", success: true, latency: time.Hour}, {at: 10, path: "/b", success: true, latency: time.Hour},
		{at: 10, path: "/a", success: true, latency: time.Second}, {at: 19, path: "/a", success: true, latency: 2 * time.Second},
		{at: 19, path: "/a", latency: time.Hour}, {at: 20, path: "/a", success: true, latency: time.Hour}, {at: 12, path: "/c"},
	}}
	require.InDelta(t, 2.0/3, metSuccess("/a")(r), 1e-9)
	require.InDelta(t, 2, metQuantile("/a", 0.95)(r), 1e-9)
	require.InDelta(t, never.Seconds(), metQuantile("/c", 0.95)(r), 1e-9, "none succeeded")
}

func TestDeadPorts_measureTheTimeUntilTheError(t *testing.T) {
	for _, s := range deadPorts() {
		r := Run(t, configOf(t, s, "naive", Own))
		require.Equal(t, 300, r.Offered)
		require.Zero(t, r.Succeeded)
		require.InDelta(t, 0.3, r.Targets[s.Targets[0].What], 1e-9, "three pauses")
		for _, target := range Verdicts(Row{r}, nil, 0) {
			require.True(t, target.Reached, target.What)
		}
	}
}

// lifePeers are the columns of the comparison.
func lifePeers() []string {
	return slices.Concat([]string{"bare"}, peers.Defaults(), []string{peers.Ours})
}

// lifeTable is the comparison in README.md: how many of 1,000 calls failed, and the requests that the server got. The fewest
// failures are bold, whichever library has them.
func lifeTable(results map[string]Result) string {
	table := report.NewTable(slices.Concat([]string{"of 1,000 calls fail"}, lifePeers(), []string{"requests: ours, others"})...)
	for _, s := range life() {
		var failed, sent []int
		for _, peer := range lifePeers() {
			r := results[s.Name+"/"+peer]
			failed, sent = append(failed, perThousand(r.Offered-r.Succeeded, r)), append(sent, perThousand(r.Attempts, r))
		}
		row := []string{s.Note}
		for _, n := range failed {
			cell := strconv.Itoa(n)
			if n == slices.Min(failed) {
				cell = "**" + cell + "**"
			}
			row = append(row, cell)
		}
		ours, others := sent[len(sent)-1], sent[:len(sent)-1]
		table.Row(append(row, fmt.Sprintf("%d, up to %d", ours, slices.Max(others)))...)
	}
	return strings.TrimSpace(table.String())
}

func perThousand(n int, r Result) int { return (1000*n + r.Offered/2) / r.Offered }

// README.md compares the libraries by these runs. Waits are random, so two runs differ a little: a figure may be off by 5 of
// 1,000 calls, or by 3 %. UPDATE_DOCS=1 writes the table.
func TestLife_isInReadme(t *testing.T) {
	results := map[string]Result{}
	for _, s := range life() {
		for _, name := range lifePeers() {
			results[s.Name+"/"+name] = Run(t, configOf(t, s, name, Shared))
		}
	}
	root, err := report.Root()
	require.NoError(t, err)
	want := lifeTable(results)
	got := overviewIn(t, "README.md", want)
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), fmt.Sprintf("Two minutes, %g calls a second through one client, deadline %v s", life()[0].Load.Rate, life()[0].Load.Deadline.Seconds()))
	require.Equal(t, 2*time.Minute, life()[0].Length())

	figure := regexp.MustCompile(`\d+`)
	wanted, shown := strings.Split(want, "\n"), strings.Split(got, "\n")
	require.Len(t, shown, len(wanted), "run the test with UPDATE_DOCS=1")
	for i, line := range wanted {
		name, _, _ := strings.Cut(strings.Trim(line, "| "), " | ")
		require.True(t, strings.HasPrefix(shown[i], "| "+name+" |") || i == 1, "run the test with UPDATE_DOCS=1; want\n%s", line)
		measured, printed := figure.FindAllString(line, -1), figure.FindAllString(shown[i], -1)
		require.Len(t, printed, len(measured), line)
		for j := range measured {
			a, _ := strconv.ParseFloat(measured[j], 64)
			b, _ := strconv.ParseFloat(printed[j], 64)
			require.InDelta(t, a, b, max(5, 0.03*a), "README.md has\n%s\nmeasured\n%s", shown[i], line)
		}
	}
}

// Three tiers without retries send one attempt to the server and return its response. Three
// tiers with four attempts each send more.
func TestTiers(t *testing.T) {
	at := func(peer string) Result {
		s := Scenario{Name: "tiers", During: 5 * time.Second, Tiers: 3, Load: Load{Rate: 20}, Server: always(1, Response{Status: 500})}
		return Run(t, configOf(t, s, peer, Shared))
	}
	require.InDelta(t, 1, at("bare").AttemptsPerCall(), 1e-9)
	require.InDelta(t, 64, at("naive").AttemptsPerCall(), 1e-9)
	require.Zero(t, at("bare").Succeeded)
}
