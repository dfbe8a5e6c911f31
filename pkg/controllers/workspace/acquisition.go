// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/render"
)

// acquisition is how machines are got for the accepted revision.
type acquisition struct {
	// attempts as they are now. persisted: this pass has written them, so it has the newest Workspace.
	attempts  acquire.Attempts
	persisted bool
	// surge is how the machines of two attempts are held at once.
	surge acquire.Surge
	// recreates is the reason to release the serving machines before others are acquired.
	recreates string
	// asksAgain: others of the same kind replace them. Their loss rules out nothing then.
	asksAgain bool
	// isMended: what stopped the last attempt has been mended.
	isMended bool
	// foreign are held machines without a possible attempt.
	foreign []string
	// leftNodes are the nodes to avoid now.
	leftNodes []render.LeftNode
	// nothingToBuyWith: no provisioner is installed.
	nothingToBuyWith bool
	// live is what was read past the caches for a decision.
	live acquire.Live
	// verdict is the preliminary one on the awaited machines.
	verdict refusal.Verdict
	// capacityErr says why machines could not be asked for.
	capacityErr error
}

// openAttempt returns the open attempt, or nil. The held one does not count.
func (a *acquisition) openAttempt() *v1beta1.Attempt { return a.attempts.OpenBut(a.surge.Serving) }

// heldAttempt returns the attempt whose machines serve beside those of the latest, or nil.
func (a *acquisition) heldAttempt() *v1beta1.Attempt {
	return a.attempts.OpenNumber(a.surge.Serving)
}

// keptNames returns the names of the machines of the held attempt.
func (a *acquisition) keptNames() []string {
	if held := a.heldAttempt(); held != nil {
		return held.NodeClaims
	}
	return nil
}

// seconds is a time as it comes back from the API server.
func seconds(at time.Time) metav1.Time {
	return metav1.NewTime(at).Rfc3339Copy()
}
