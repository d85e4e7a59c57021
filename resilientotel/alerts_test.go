package resilientotel

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Each metric and label of the alerts is exported, and each alert has a severity and texts.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	known, alerts := exported(t), 0
	operators := regexp.MustCompile(`(?m)^(and|or|unless)\b.*$`)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts++
			for _, operand := range operators.Split(rule.Expr, -1) {
				checkQuery(t, known, rule.Alert, operand)
			}
			if !strings.Contains(rule.Expr, "_unknown_") { // one is enough
				require.NotEmpty(t, rule.For, rule.Alert)
			}
			require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		}
	}
	require.Equal(t, 12, alerts)
}

// promtool accepts the alerts, and each of them fires and does not fire as in alerts_test.yml.
func TestAlerts_promtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it is in Debian's package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../docs"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
