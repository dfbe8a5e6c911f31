// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/usd"
	"github.com/modelberth/modelberth/pkg/wording"
)

const (
	// headroom is a multiple of the busiest hour's load. The recommended machines must sustain it.
	headroom = 2
	// leastSaving is the smallest saving worth a change, as a part of the price.
	leastSaving = 0.05
	// mostDays is the number of days that the ledger keeps.
	mostDays = 62
)

// rightsizeCommand is kubectl berth rightsize.
type rightsizeCommand struct {
	installedPlans
	connection
	output
	ledgerSource

	since string
}

func newRightsize(w World) *cobra.Command {
	r := &rightsizeCommand{}
	cmd := &cobra.Command{
		Use:   "rightsize [WORKSPACE...]",
		Short: "Advise on cheaper machines for Workspaces, from their observed load",
		Long: fmt.Sprintf(`Advise on cheaper machines for Workspaces, from their observed load. The command changes nothing.

The cost ledger (the chart's cost.enabled) has the token counts of each engine: per hour for the last two days, and per day
for the time before. For each Workspace on bought machines, the command makes a new plan with the controller's
planner and settings: for %d times the rate of the busiest hour, and for requests of the length that the present plan
assumes. The new plan keeps the spec's context, precision, zones, capacity types, limits and required speed, but not its
machine types, accelerators, number of machines and concurrency. The command recommends the new plan if it is at
least %.0f %% cheaper than the present one at today's price.

Advice needs enough data since --since: on the present machine type, the model must have answered for at least three
days and for 24 of the last 48 hours, and produced at least 100000 output tokens. The ledger counts tokens, not requests.
Requests that came while the model did not answer are missing.

The command reads the Workspaces, their revisions and the copy of the ledger in your namespace; with -A, the ledger
of all namespaces, as kubectl berth cost does. If you may not read the controller's Deployment, set its settings by
flags.`, headroom, 100*leastSaving),
		Example: `  kubectl berth rightsize
  kubectl berth rightsize chat --since 14d
  kubectl berth rightsize -A --ledger-namespace modelberth-system -o json`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), cmd, w, args) },
	}
	cmd.Flags().StringVar(&r.since, "since", "7d", "start of the period, as a duration such as 7d, or a date such as 2026-11-01; at most 62 days ago")
	r.ledgerSource.bind(cmd)
	r.connection.bind(cmd, w)
	r.installedPlans.bind(cmd, w)
	r.output.bind(cmd, false)
	return cmd
}

// sizing is the advice for one Workspace, or the reason why there is none.
type sizing struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Now is the accepted plan, and its price at the time of the purchase.
	Now         string   `json:"now,omitempty"`
	HourlyPrice *float64 `json:"hourlyPrice,omitempty"`
	// The observed load. Mean and Busiest are in output tokens per second.
	ServingDays  float64 `json:"servingDays,omitempty"`
	PromptTokens int64   `json:"promptTokens,omitempty"`
	OutputTokens int64   `json:"outputTokens,omitempty"`
	Mean         float64 `json:"meanOutputTokensPerSecond,omitempty"`
	Busiest      float64 `json:"busiestOutputTokensPerSecond,omitempty"`
	// Used is Mean divided by the planned speed.
	Used float64 `json:"used,omitempty"`
	// Advised machines with their price and saving in USD per hour, and the edits of the spec; absent without advice.
	Advised      string   `json:"advised,omitempty"`
	AdvisedPrice *float64 `json:"advisedHourlyPrice,omitempty"`
	Saves        float64  `json:"savesPerHour,omitempty"`
	// Basis of the advised plan's speed.
	Basis v1beta1.Basis `json:"basis,omitempty"`
	Edits []string      `json:"edits,omitempty"`
	// Reason explains why there is no advice.
	Reason string `json:"reason,omitempty"`
}

func (r *rightsizeCommand) run(ctx context.Context, cmd *cobra.Command, w World, names []string) error {
	now := w.Clock.Now()
	since, err := sinceOf(r.since, now)
	if err != nil {
		return err
	}
	if now.Sub(since) > mostDays*24*time.Hour {
		return usageError("--since is %s, but the ledger has no more than %d days: name a later start", r.since, mostDays)
	}
	if err := r.ledgerSource.check(); err != nil {
		return err
	}
	if r.all && len(names) > 0 {
		return usageError("name Workspaces or pass -A, but not both")
	}
	cluster, err := r.connection.open()
	if err != nil {
		return err
	}
	workspaces, err := r.workspaces(ctx, cluster, names)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ledger, err := r.read(limited, cluster)
	if err != nil {
		return err
	}
	remove, err := r.prepare(ctx, cmd, cluster, w)
	if err != nil {
		return err
	}
	defer remove()
	charges, out := ledger.Charges(since), []sizing{}
	for i := range workspaces {
		out = append(out, r.advise(ctx, cluster, &workspaces[i], charges))
	}
	if r.forPrograms() {
		return r.data(w.Out, out)
	}
	return showSizings(w, out, now.Sub(since), r.all)
}

// workspaces reads the named Workspaces, or all in the namespace or the cluster, sorted by name.
func (r *rightsizeCommand) workspaces(ctx context.Context, cluster *Cluster, names []string) ([]v1beta1.Workspace, error) {
	var out []v1beta1.Workspace
	for _, name := range names {
		ws, err := cluster.workspace(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, *ws)
	}
	if len(names) > 0 {
		return out, nil
	}
	in := client.InNamespace(cluster.Namespace)
	if r.all {
		in = ""
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	list := &v1beta1.WorkspaceList{}
	if err := cluster.Objects.List(ctx, list, in); err != nil {
		return nil, worded(err, "Workspaces")
	}
	slices.SortFunc(list.Items, func(a, b v1beta1.Workspace) int { return strings.Compare(key(&a), key(&b)) })
	return list.Items, nil
}

// prepare opens the planner with the controller's settings, or with this command's if the user may not read the
// controller's.
func (r *rightsizeCommand) prepare(ctx context.Context, cmd *cobra.Command, cluster *Cluster, w World) (func(), error) {
	var notes []string
	remove, err := r.settle(ctx, cmd, cluster, nil, &notes)
	if apierrors.IsForbidden(err) {
		notes, err = append(notes, "you may not read the controller's settings: plans use the flags of this command"), r.planOptions.open()
	}
	for _, note := range notes {
		fmt.Fprintf(w.Err, "Note: %s.\n", note)
	}
	return remove, err
}

// advise returns the advice for one Workspace.
func (r *rightsizeCommand) advise(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace, charges []cost.Charge) sizing {
	out := sizing{Namespace: ws.Namespace, Name: ws.Name}
	current, problem := r.current(ctx, cluster, ws)
	if problem != "" {
		out.Reason = problem
		return out
	}
	plan := &current.Plan
	out.Now, out.HourlyPrice = plan.Summary(), knownPrice(plan.HourlyPrice)
	load := cost.LoadOf(charges, cost.Name{Namespace: ws.Namespace, Workspace: ws.Name}, plan.InstanceType, plan.Nodes)
	mean := load.Mean()
	out.ServingDays, out.PromptTokens, out.OutputTokens = load.Serving.Hours()/24, load.Prompt, load.Output
	out.Mean, out.Busiest, out.Used = mean.Output, load.Busiest.Output, mean.Output/plan.Performance.OutputTokensPerSecond
	if out.Reason = load.Problem(); out.Reason == "" {
		r.compareCheaper(ctx, current, rateOf(&load, plan.Performance), &out)
	}
	return out
}

// current returns the accepted revision of a Workspace, or the reason why there is no advice.
func (*rightsizeCommand) current(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace) (*pinned, string) {
	if ws.Inference == nil || ws.Inference.Template != nil {
		return nil, "the catalogue has no facts about its model"
	}
	revisions, err := cluster.revisions(ctx, ws)
	if err != nil {
		return nil, wording.OneLine(err.Error())
	}
	switch current := accepted(revisions); {
	case current == nil || current.Inputs == nil:
		return nil, "it has no plan yet"
	case len(current.Plan.NodeNames) > 0:
		return nil, "it uses existing nodes, which the ledger does not charge for"
	case current.Plan.Performance == nil || current.Plan.Performance.OutputTokensPerSecond <= 0:
		return nil, "its plan has no speed to compare with"
	default:
		return current, ""
	}
}

// rateOf returns the requests per second to plan for. Requests of the plan's length at that rate have the tokens of the
// busiest hour, times headroom.
func rateOf(load *cost.Load, assumed *planner.Performance) float64 {
	rate := max(load.Busiest.Prompt/float64(max(assumed.InputTokens, 1)), load.Busiest.Output/float64(max(assumed.OutputTokens, 1)))
	const digits = 1000
	return math.Ceil(headroom*rate*digits) / digits
}

// compareCheaper plans for a rate. It recommends the new plan if that costs less than the present one by leastSaving, at
// today's price. If the present machines cannot be bought today, it compares with their price at the purchase.
func (r *rightsizeCommand) compareCheaper(ctx context.Context, current *pinned, rate float64, out *sizing) {
	source := made(current.Inputs)
	source.Namespace, source.Name = out.Namespace, out.Name
	quoted, refused := r.pipeline.Builder.Quote(&revision.Revision{Revision: current.Revision}, source, r.limits)
	today := quoted.Plan.HourlyPrice
	if refused != "" || today < 0 {
		today = current.Plan.HourlyPrice
	}
	leaner, edits := request.Leaner(source, rate)
	inputs := revision.Inputs(leaner, current.Inputs.Config)
	next, err := r.pipeline.Make(ctx, planning.Ask{Workspace: leaner, Inputs: inputs, Limits: r.limits})
	switch {
	case err != nil:
		out.Reason = "no plan keeps up with its load: " + wording.OneLine(progress.Message(err))
	case today < 0 || next.Plan.HourlyPrice < 0:
		out.Reason = "the price of the present plan or of the new plan is unknown"
	case next.Plan.HourlyPrice > today*(1-leastSaving):
		out.Reason = fmt.Sprintf("no plan for %s requests/s is at least %.0f %% cheaper", decimalOf(rate), 100*leastSaving)
	default:
		out.Advised, out.AdvisedPrice, out.Edits = next.Plan.Summary(), knownPrice(next.Plan.HourlyPrice), edits
		out.Saves = today - next.Plan.HourlyPrice
		if next.Plan.Performance != nil {
			out.Basis = next.Plan.Performance.Basis
		}
	}
}

func decimalOf(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// showSizings writes a paragraph for each Workspace.
func showSizings(w World, all []sizing, window time.Duration, withNamespace bool) error {
	out := page{w.Out, newStyle(w)}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w.Err, "There are no Workspaces.")
		return err
	}
	for i := range all {
		s := &all[i]
		name := s.Name
		if withNamespace {
			name = s.Namespace + "/" + s.Name
		}
		if s.Advised == "" {
			out.line("%s: no advice: %s", name, s.Reason)
			continue
		}
		out.line("%s used %.0f %% of the planned speed of %s in %.0f days: %s would serve its load for %s less",
			name, 100*s.Used, s.Now, window.Hours()/24, s.Advised, usd.PerHour(s.Saves))
		out.line("  observed: %.1f days of answers with %d prompt and %d output tokens; %.1f output tokens/s on average, %.1f in the busiest hour",
			s.ServingDays, s.PromptTokens, s.OutputTokens, s.Mean, s.Busiest)
		out.line("  the new plan keeps up with %d times the load of the busiest hour (%s); to apply it: %s", headroom, s.Basis, strings.Join(s.Edits, ", "))
	}
	return nil
}
