package agent_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// The status and the log say that an API server does not accept lists. The device is healthy and
// published. An edit of the configuration ends the problem.
func TestListsAreNotAccepted(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, "list_attributes = true\n"+zigbeeDRA+"attributes.places = [\"lab\", \"rack-4\"]\n")
	asked := func(r *http.Request) bool { return r.URL.RawQuery == "dryRun=All" }
	api.Refuse(func(r *http.Request) (int, kubeapitest.Object) {
		if !asked(r) {
			return 0, nil
		}
		cause := kubeapitest.Object{"field": "spec.devices[0].attributes[list]", "message": "exactly one value must be specified"}
		return http.StatusUnprocessableEntity, kubeapitest.Object{
			"code": http.StatusUnprocessableEntity, "reason": "Invalid", "details": kubeapitest.Object{"causes": []any{cause}},
		}
	})
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	a, _ := n.serve()
	n.untilPublished(api, map[string]string{dra.DeviceName(stickID): ""})
	problem := func() string { return listProblem(t, a) }
	n.eventually("problem", func() bool { return strings.Contains(problem(), "DRAListTypeAttributes") })
	for _, slice := range api.Objects("/apis/resource.k8s.io/v1/resourceslices") {
		if text := fmt.Sprint(slice); strings.Contains(text, "places") || !strings.Contains(text, "AAAA1111") {
			t.Errorf("the slice has lists, or lacks other attributes: %s", text)
		}
	}
	n.eventually("healthy", func() bool {
		resources := a.Status(t.Context()).Resources
		return len(resources) == 1 && resources[0].Slots.Healthy == 1 && a.Ready() == nil
	})
	if got := strings.Count(n.log.String(), "attributes are left out"); got != 1 {
		t.Errorf("%d messages in the log, want one", got)
	}

	n.configure(zigbeeDRA)
	n.eventually("no problem", func() bool { return problem() == "" })
}

// listProblem is what the status says about lists, or an empty string.
func listProblem(t *testing.T, a *agent.Agent) string {
	t.Helper()
	problems := a.Status(t.Context()).Problems
	i := slices.IndexFunc(problems, func(p status.Problem) bool { return p.Subject == "list_attributes" })
	if i < 0 {
		return ""
	}
	return problems[i].Reason
}
