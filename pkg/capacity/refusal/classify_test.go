// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
)

var (
	created = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	limits  = Deadlines{Launched: 10 * time.Minute, Registered: 20 * time.Minute, Initialized: 30 * time.Minute}
	asked   = Offering{InstanceType: "big", Family: "fam", CapacityType: v1beta1.CapacityOnDemand}
	onTrue  = Condition{Status: StatusTrue, Since: created.Add(time.Minute)}
)

const (
	uid      = "u-1"
	onDemand = v1beta1.CapacityOnDemand
	spot     = v1beta1.CapacitySpot
	ice      = "InsufficientCapacityError"
	allOut   = "NodeClaim chat-0 event: insufficient capacity, all requested instance types were unavailable during launch"
	iceAWS   = "NodeClaim chat-0 event: insufficient capacity, with fleet error(s), "
)

// claim returns an observation of a new claim for Karpenter on Azure, after changes.
func claim(changes ...func(*Observation)) Observation {
	o := Observation{Provider: KarpenterAzure, Offering: asked, UID: uid, CreatedAt: created, GPUsWanted: 8}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func by(p Provider) func(*Observation) { return func(o *Observation) { o.Provider = p } }

func says(reason, message string) func(*Observation) {
	return func(o *Observation) {
		o.Launched = Condition{Status: StatusUnknown, Reason: reason, Message: message, Since: created}
	}
}

func noted(age time.Duration, reason, message string) func(*Observation) {
	return func(o *Observation) {
		o.Noted = append(o.Noted, Note{Reason: reason, Message: message, At: created.Add(age)})
	}
}

func event(age time.Duration, reason, message string) func(*Observation) {
	return func(o *Observation) {
		o.Events = append(o.Events, Event{UID: uid, Reason: reason, Message: message, At: created.Add(age)})
	}
}

func gone(age time.Duration) func(*Observation) {
	return func(o *Observation) { o.GoneAt = created.Add(age) }
}

func on(zone string, capacityType v1beta1.CapacityType) func(*Observation) {
	return func(o *Observation) { o.Offering.Zone, o.Offering.CapacityType = zone, capacityType }
}

func launched(o *Observation) { o.Launched, o.ProviderID = onTrue, "vm" }

func registered(o *Observation) {
	launched(o)
	o.Registered, o.NodeName = Condition{Status: StatusTrue, Since: created.Add(3 * time.Minute)}, "node"
}

func offering(zone string, capacityType v1beta1.CapacityType) Scope {
	return Scope{OneOffering, "big", zone, capacityType, ""}
}

func sku(capacityType v1beta1.CapacityType) Scope { return Scope{SKU, "big", Any, capacityType, ""} }

func family(capacityType v1beta1.CapacityType) Scope {
	return Scope{Family, "fam", Any, capacityType, ""}
}

func everything(capacityType v1beta1.CapacityType) Scope {
	return Scope{Everything, "", Any, capacityType, ""}
}

// outcome is the decisive part of a verdict.
type outcome struct {
	Cause    Cause
	Scope    Scope
	Cooldown time.Duration
	Rule     string
	Final    bool
	// LookAgain as the claim's age.
	LookAgain time.Duration
}

func outcomeOf(v Verdict) outcome {
	out := outcome{Cause: v.Cause, Scope: v.Scope, Cooldown: v.Cooldown, Rule: v.Rule, Final: v.Final}
	if !v.LookAgain.IsZero() {
		out.LookAgain = v.LookAgain.Sub(created)
	}
	return out
}

type classifyCase struct {
	reason string
	seen   Observation
	age    time.Duration
	want   outcome
}

func runClassify(t *testing.T, tests []classifyCase) {
	t.Helper()
	rules := mustRules(t)
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := rules.Classify(test.seen, limits, created.Add(test.age))
			if diff := cmp.Diff(test.want, outcomeOf(got)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s%q", diff, got.Message)
			}
			if got.Cause != None && got.Message == "" {
				t.Error("a cause without a message")
			}
		})
	}
}

// TestClassifyObservations has the rows of the table of observable signals in the notes on Karpenter (§2.8), in order.
func TestClassifyObservations(t *testing.T) {
	const at1, at5, at15 = 30 * time.Second, 5 * time.Minute, 15 * time.Minute
	quota := "subscription level on-demand vCPU quota for big has been reached (may try provision an alternative instance type)"
	runClassify(t, []classifyCase{
		{
			"row 1: deleted within a minute with an ICE event: what was asked for is out", claim(event(at1, ice, allOut), gone(at1)), at1,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "all-unavailable", true, 0},
		},
		{
			"row 2: the same without an event, node class ready: as an ICE",
			claim(gone(at1), func(o *Observation) { o.Class = ClassReady }), at1,
			outcome{NoCapacity, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"row 2: the same without an event, node class not ready: nothing else will work either",
			claim(gone(at1), func(o *Observation) { o.Class, o.ClassMessage = ClassNotReady, "ImagesReady=False" }), at1,
			outcome{Misconfigured, everything(onDemand), 0, "", true, 0},
		},
		{
			"row 2: the same without an event, node class missing",
			claim(gone(at1), func(o *Observation) { o.Class = ClassMissing }), at1,
			outcome{Misconfigured, everything(onDemand), 0, "", true, 0},
		},
		{
			"row 3: SubscriptionQuotaReached rules out the family for an hour", claim(says("SubscriptionQuotaReached", quota)), at1,
			outcome{Quota, family(onDemand), time.Hour, "azure-family-quota", true, 0},
		},
		{
			"row 4: AllocationFailure", claim(says("AllocationFailure", "")), at1,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation", true, 0},
		},
		{
			"row 4: ZonalAllocationFailure in the zone that was asked for", claim(on("eastus-1", onDemand), says("ZonalAllocationFailure", "")), at1,
			outcome{NoCapacity, offering("eastus-1", Any), time.Hour, "azure-zonal-reason", true, 0},
		},
		{
			"row 4: Overconstrained…", claim(says("OverconstrainedAllocationFailure", "")), at1,
			outcome{NoCapacity, sku(onDemand), time.Hour, "azure-overconstrained", true, 0},
		},
		{
			"row 5: SKUNotAvailable on demand is not sold here", claim(says("SKUNotAvailable", "")), at1,
			outcome{NotOffered, offering("", onDemand), 23 * time.Hour, "azure-sku-not-available", true, 0},
		},
		{
			"row 5: SKUNotAvailable of spot is spot run dry", claim(on("", spot), says("SKUNotAvailable", "")), at1,
			outcome{NotOffered, offering("", spot), time.Hour, "azure-sku-not-available", true, 0},
		},
		{
			"row 6: CreateInstanceFailed with a known code in its text", claim(says("CreateInstanceFailed", "RESPONSE 409 ERROR CODE: AllocationFailed")), at1,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation-1.13", true, 0},
		},
		{
			"row 6: CreateInstanceFailed with an unknown text may pass: Karpenter tries again", claim(says("CreateInstanceFailed", "boom")), at1,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", false, 2 * time.Minute},
		},
		{
			"row 6: and is given up when it does not", claim(says("LaunchFailed", "boom")), 2 * time.Minute,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"row 7: a configuration error on AWS stops", claim(by(KarpenterAWS), says("Unauthorized", "User is not authorized")), at1,
			outcome{Misconfigured, everything(Any), 0, "aws-configuration", true, 0},
		},
		{
			"row 7: so does another", claim(by(KarpenterAWS), says("InstanceProfileNameInvalid", "does not exist")), at1,
			outcome{Misconfigured, everything(Any), 0, "aws-configuration", true, 0},
		},
		{
			"row 8: deleted after 5 minutes, never launched: the reason that was noted", claim(noted(at1, "ZonalAllocationFailure", ""), gone(at5)), at5,
			outcome{NoCapacity, offering("", Any), time.Hour, "azure-zonal-reason", true, 0},
		},
		{
			"row 8: the same with a reason that no rule knows", claim(noted(at1, "CreateInstanceFailed", "boom"), gone(at5)), at5,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"row 8: the same with no reason", claim(gone(at5)), at5,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"row 9: deleted after 15 minutes, launched, never registered", claim(launched, gone(at15)), at15,
			outcome{NeverRegistered, sku(onDemand), 30 * time.Minute, "", true, 0},
		},
		{
			"row 10: registered, not initialised after our deadline", claim(registered), 33 * time.Minute,
			outcome{NeverInitialized, sku(onDemand), time.Hour, "", true, 0},
		},
		{
			"row 11: deleted after it was initialised: replaced at once",
			claim(registered, gone(5*time.Hour), func(o *Observation) { o.Initialized, o.WasUsable = onTrue, true }), 5 * time.Hour,
			outcome{Lost, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"row 11: spot is left alone for a while",
			claim(registered, on("eastus-1", spot), gone(5*time.Hour), func(o *Observation) { o.Initialized, o.WasUsable = onTrue, true }), 5 * time.Hour,
			outcome{Lost, offering("eastus-1", spot), 10 * time.Minute, "", true, 0},
		},
	})
}

// TestClassifyAzureUnavailability has the rows of Azure's table of unavailability (§3.6), in order: with the reasons
// of releases from 1.14, and with the raw ARM messages from older releases and from gpu-provisioner.
func TestClassifyAzureUnavailability(t *testing.T) {
	const soon = 30 * time.Second
	exceeding := func(what, numbers string) string {
		return "Operation could not be completed as it results in exceeding approved " + what + " quota. Additional details - " +
			"Deployment Model: Resource Manager, Location: westus2, " + numbers + ". Submit a request for Quota increase at https://aka.ms/x"
	}
	some, zero := "Current Limit: 100, Current Usage: 96, Additional Required: 32", "Current Limit: 0, Current Usage: 0, Additional Required: 32"
	zonal := "unable to allocate resources in the selected zone (eastus-2). (will try a different zone to fulfill your request)"
	overZonal := "unable to allocate resources in the selected zone (eastus-2) with spot capacity type and big VM size. (will try a different one)"
	spotQuota := "this subscription has reached the regional vCPU quota for spot (LowPriorityQuota). To scale beyond this limit, see"
	regional := "regional on-demand vCPU quota limit for subscription has been reached. To scale beyond this limit, see"
	runClassify(t, []classifyCase{
		{
			"row 1: family quota with a limit above 0", claim(says("CreateInstanceFailed", exceeding("standardXFamily Cores", some))), soon,
			outcome{Quota, sku(onDemand), 10 * time.Minute, "arm-family-quota", true, 0},
		},
		{
			"row 2: family quota of 0", claim(says("CreateInstanceFailed", exceeding("standardXFamily Cores", zero))), soon,
			outcome{Quota, family(onDemand), time.Hour, "arm-family-quota-zero", true, 0},
		},
		{
			"row 2: a limit of 0 is not the limit 0 of 96", claim(says("CreateInstanceFailed", exceeding("standardXFamily Cores", "Current Limit: 04"))), soon,
			outcome{Quota, sku(onDemand), 10 * time.Minute, "arm-family-quota", true, 0},
		},
		{
			"row 3: spot quota rules out all spot, whatever the machine type", claim(on("", spot), says("SubscriptionQuotaReached", spotQuota)), soon,
			outcome{Quota, everything(spot), time.Hour, "azure-spot-quota", true, 0},
		},
		{
			"row 3: in ARM's words", claim(on("", spot), says("CreateInstanceFailed", exceeding("LowPriorityCores", some))), soon,
			outcome{Quota, everything(spot), time.Hour, "arm-spot-quota", true, 0},
		},
		{
			"row 3: words about spot say nothing about on-demand", claim(says("CreateInstanceFailed", exceeding("Low Priority Cores", zero))), soon,
			outcome{Quota, everything(spot), time.Hour, "arm-spot-quota", true, 0},
		},
		{
			"row 4: zonal allocation names the zone, and means both capacity types",
			claim(on("eastus-2", onDemand), says("ZonalAllocationFailure", zonal)), soon,
			outcome{NoCapacity, offering("eastus-2", Any), time.Hour, "azure-zonal", true, 0},
		},
		{
			"row 4: before 1.14", claim(on("eastus-2", onDemand), says("CreateInstanceFailed", "creating standalone instance failed, "+zonal)), soon,
			outcome{NoCapacity, offering("eastus-2", Any), time.Hour, "azure-zonal", true, 0},
		},
		{
			"row 4: where any zone will do, the provisioner tries the others", claim(says("ZonalAllocationFailure", zonal)), soon,
			outcome{NoCapacity, offering("", Any), time.Hour, "azure-zonal", false, 2 * time.Minute},
		},
		{
			"row 4: but not for ever, and then what was asked for is out", claim(says("ZonalAllocationFailure", zonal)), 2 * time.Minute,
			outcome{NoCapacity, offering("", Any), time.Hour, "azure-zonal", true, 0},
		},
		{
			"row 4: of several zones one is out", claim(on("eastus-1,eastus-2", onDemand), says("ZonalAllocationFailure", zonal)), soon,
			outcome{NoCapacity, offering("eastus-1,eastus-2", Any), time.Hour, "azure-zonal", false, 2 * time.Minute},
		},
		{
			"row 5: allocation means every zone and both capacity types",
			claim(on("eastus-1", onDemand), says("AllocationFailure", "unable to allocate resources with selected VM size (big).")), soon,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation", true, 0},
		},
		{
			"row 6: overconstrained zonal is this zone and this capacity type", claim(on("eastus-2", spot), says("OverconstrainedZonalAllocationFailure", overZonal)), soon,
			outcome{NoCapacity, offering("eastus-2", spot), time.Hour, "azure-overconstrained-zonal", true, 0},
		},
		{
			"row 7: overconstrained is this capacity type", claim(on("", spot), says("CreateInstanceFailed",
				"unable to allocate resources in all zones with spot capacity type and big VM size.")), soon,
			outcome{NoCapacity, sku(spot), time.Hour, "azure-overconstrained-1.13", true, 0},
		},
		{
			"row 8: SkuNotAvailable on demand", claim(says("CreateInstanceFailed", "ERROR CODE: SkuNotAvailable")), soon,
			outcome{NotOffered, offering("", onDemand), 23 * time.Hour, "arm-sku-not-available", true, 0},
		},
		{
			"row 8: SkuNotAvailable of spot", claim(on("", spot), says("CreateInstanceFailed", "ERROR CODE: SkuNotAvailable")), soon,
			outcome{NotOffered, offering("", spot), time.Hour, "arm-sku-not-available", true, 0},
		},
		{
			"row 9: VMSizeNotSupported through the machine API", claim(says("SKUNotAvailable",
				"VM size big is not supported for this subscription in this location, for more details please visit")), soon,
			outcome{NotOffered, sku(Any), 23 * time.Hour, "azure-size-unsupported", true, 0},
		},
		{
			"row 10: regional quota deletes the claim and is named as quota", claim(event(soon, ice, "NodeClaim chat-0 event: insufficient capacity, "+regional), gone(soon)), soon,
			outcome{Quota, everything(onDemand), 10 * time.Minute, "azure-regional-quota", true, 0},
		},
		{
			"row 11: anything else is this offering for a short while", claim(says("CreateInstanceFailed", "InvalidParameter"), on("eastus-1", onDemand)), time.Hour,
			outcome{Unknown, offering("eastus-1", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"from 1.14, offers without quota are hidden: no capacity or quota", claim(on("eastus-1", onDemand), event(soon, ice, allOut), gone(soon)), soon,
			outcome{NoCapacity, offering("eastus-1", onDemand), 10 * time.Minute, "all-unavailable", true, 0},
		},
	})
}

func TestClassifyOthersWords(t *testing.T) {
	const soon = 30 * time.Second
	arm := func(code, message string) string {
		return `agentPool.BeginCreateOrUpdate for "wschat0" failed: PUT https://management.azure.com/subscriptions/x
--------------------------------------------------------------------------------
RESPONSE 400: 400 Bad Request
ERROR CODE: ` + code + `
--------------------------------------------------------------------------------
{ "code": "` + code + `", "details": null, "message": "` + message + `", "subcode": "" }`
	}
	vcpu := "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of %s allows for the instance bucket"
	dry := "InsufficientInstanceCapacity: We currently do not have sufficient big capacity in the Availability Zone you requested (us-east-1a). Our system"
	unsupported := "Unsupported: Your requested instance type (big) is not supported in your requested Availability Zone (us-east-1e). Please retry"
	runClassify(t, []classifyCase{
		{
			"gpu-provisioner keeps a claim that failed: its words are final", claim(by(GPUProvisioner), says("LaunchFailed",
				arm("ErrCode_InsufficientVCPUQuota", "Insufficient vcpu quota requested 24, remaining 0 for family standardNCADSA100v4Family for region eastus."))), soon,
			outcome{Quota, family(onDemand), time.Hour, "aks-family-quota-zero", true, 0},
		},
		{
			"gpu-provisioner: some quota is left", claim(by(GPUProvisioner), says("LaunchFailed",
				arm("ErrCode_InsufficientVCPUQuota", "Insufficient vcpu quota requested 24, remaining 6 for family x"))), soon,
			outcome{Quota, sku(onDemand), 10 * time.Minute, "aks-family-quota", true, 0},
		},
		{
			"gpu-provisioner: a size that the subscription may not have", claim(by(GPUProvisioner), says("LaunchFailed",
				arm("BadRequest", "The VM size of big is not allowed in your subscription in location 'eastus'."))), soon,
			outcome{NotOffered, sku(Any), 23 * time.Hour, "aks-size-unsupported", true, 0},
		},
		{
			"gpu-provisioner: an error nested three deep", claim(by(GPUProvisioner), says("LaunchFailed", arm("InvalidTemplateDeployment",
				`Provisioning of resource(s) for Agent Pool failed. Error: {\n \"code\": \"InvalidTemplateDeployment\", \"message\": \"The template `+
					`deployment failed with error: 'The resource failed validation with message: 'The requested size for resource 'x' is currently not available in `+
					`location 'eastus' zones '' for subscription 'y'.\"}`))), soon,
			outcome{NotOffered, offering("", onDemand), 23 * time.Hour, "arm-sku-not-available", true, 0},
		},
		{
			"gpu-provisioner: an unknown error has until the launch deadline", claim(by(GPUProvisioner), says("LaunchFailed", "boom")), 5 * time.Minute,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", false, 10 * time.Minute},
		},
		{
			"gpu-provisioner never times out: we do", claim(by(GPUProvisioner)), 10 * time.Minute,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"Karpenter times out no pool without a claim either", claim(says(ReasonNoNodeClaim, "none was made")), 9 * time.Minute,
			outcome{None, Scope{}, 0, "", false, 10 * time.Minute},
		},
		{
			"so we do", claim(by(UnknownProvider), says(ReasonNoNodeClaim, "none was made")), 10 * time.Minute,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"a pool that is not ready may be new", claim(says(ReasonNodePoolNotReady, "NodeClassReady: no subnet")), soon,
			outcome{Misconfigured, everything(Any), 0, "node-pool-not-ready", false, 2 * time.Minute},
		},
		{
			"one that stays so has to be mended", claim(says(ReasonNodePoolNotReady, "NodeClassReady: no subnet")), 2 * time.Minute,
			outcome{Misconfigured, everything(Any), 0, "node-pool-not-ready", true, 0},
		},
		{
			"Karpenter knows of no offer for a pool", claim(says(ReasonNoInstanceTypes, "NodePool requirements filtered out all compatible available instance types")), soon,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "karpenter-hidden", true, 0},
		},
		{
			"nor for a pod", claim(says(ReasonFailedScheduling, "no instance type met the scheduling requirements or had a required offering, requirements=x")), soon,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "karpenter-no-offering", true, 0},
		},
		{
			"a machine that is too small for the pod", claim(says(ReasonFailedScheduling, "no instance type has enough resources, requirements=x")), soon,
			outcome{NotOffered, sku(onDemand), time.Hour, "karpenter-too-small", true, 0},
		},
		{
			"a volume may still be made", claim(says(ReasonFailedScheduling, "failed to validate pvc, it must be bound")), soon,
			outcome{Misconfigured, everything(Any), 0, "karpenter-volume", false, 5 * time.Minute},
		},
		{
			"other words may be about another pool that is to come", claim(says(ReasonFailedScheduling, "something else")), soon,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", false, 2 * time.Minute},
		},
		{
			"whoever says so has until the launch deadline", claim(by(UnknownProvider), says(ReasonFailedScheduling, "something else")), 10 * time.Minute,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"gpu-provisioner deletes nothing: a claim that vanished was deleted by somebody", claim(by(GPUProvisioner), gone(soon)), soon,
			outcome{Lost, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"nor does it give up machines that never join", claim(by(GPUProvisioner), launched, gone(15*time.Minute)), time.Hour,
			outcome{Lost, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"gpu-provisioner does not speak as Karpenter on AWS does", claim(by(GPUProvisioner), says("Unauthorized", "")), soon,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", false, 10 * time.Minute},
		},
		{
			"AWS: an ICE event names the zone, but the claim allowed any and is gone", claim(by(KarpenterAWS), event(soon, ice, iceAWS+dry), gone(soon)), soon,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-no-capacity", true, 0},
		},
		{
			"AWS: an ICE event of a claim that still stands: it is about to go, whatever zone it names",
			claim(by(KarpenterAWS), event(soon, ice, iceAWS+dry)), soon,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-no-capacity", true, 0},
		},
		{
			"AWS: quota is an ICE too, and is named as quota", claim(by(KarpenterAWS), event(soon, ice, iceAWS+strings.ReplaceAll(vcpu, "%s", "0")), gone(soon)), soon,
			outcome{Quota, family(onDemand), time.Hour, "aws-vcpu-limit-zero", true, 0},
		},
		{
			"AWS: a limit above 0 leaves smaller machines", claim(by(KarpenterAWS), event(soon, ice, iceAWS+strings.ReplaceAll(vcpu, "%s", "64")), gone(soon)), soon,
			outcome{Quota, sku(onDemand), 10 * time.Minute, "aws-vcpu-limit", true, 0},
		},
		{
			"AWS: one zone is dry and another does not sell it: capacity may come back",
			claim(by(KarpenterAWS), event(soon, ice, iceAWS+unsupported+"; "+dry), gone(soon)), soon,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-no-capacity", true, 0},
		},
		{
			"AWS: not sold in the only zone", claim(by(KarpenterAWS), on("us-east-1e", onDemand), event(soon, ice, iceAWS+unsupported), gone(soon)), soon,
			outcome{NotOffered, offering("us-east-1e", Any), 23 * time.Hour, "aws-unsupported", true, 0},
		},
		{
			"AWS: spot limits are per family", claim(by(KarpenterAWS), on("", spot), event(soon, ice, iceAWS+"MaxSpotInstanceCountExceeded: Max spot instance count exceeded"), gone(soon)), soon,
			outcome{Quota, family(spot), time.Hour, "aws-spot-limit", true, 0},
		},
		{
			"AWS: throttling passes", claim(by(KarpenterAWS), says("RequestLimitExceeded", "Request limit exceeded")), soon,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "busy", false, 2 * time.Minute},
		},
		{
			"AWS: the missing node class is an ICE and no stock-out", claim(by(KarpenterAWS), event(soon, ice,
				"NodeClaim chat-0 event: insufficient capacity, resolving nodeclass, ec2nodeclasses.karpenter.k8s.aws \"gpu\" not found"), gone(soon)), soon,
			outcome{Misconfigured, everything(Any), 0, "aws-node-class-unresolved", true, 0},
		},
		{
			"Azure: the missing node class has an event of its own beside the ICE", claim(event(soon, ice, allOut),
				event(soon, "NodeClassResolutionError", "Failed resolving NodeClass"), gone(soon)), soon,
			outcome{Misconfigured, everything(Any), 0, "azure-node-class-missing", true, 0},
		},
		{
			"AWS: an interruption explains the loss", claim(by(KarpenterAWS), registered, on("us-east-1a", spot),
				event(time.Hour, "SpotInterrupted", "Spot interruption warning was triggered"), gone(time.Hour)), time.Hour,
			outcome{Lost, offering("us-east-1a", spot), 10 * time.Minute, "aws-interrupted", true, 0},
		},
	})
}

func TestClassifyByAge(t *testing.T) {
	unknown := by(UnknownProvider)
	quiet := func(again time.Duration) outcome { return outcome{LookAgain: again} }
	runClassify(t, []classifyCase{
		{"nothing is wrong at the start", claim(), 0, quiet(20 * time.Minute)},
		{"nor while Karpenter has not looked", claim(says("AwaitingReconciliation", "object is awaiting reconciliation")), time.Minute, quiet(20 * time.Minute)},
		{"gpu-provisioner has a deadline for the launch", claim(by(GPUProvisioner)), 9 * time.Minute, quiet(10 * time.Minute)},
		{"a launched claim has until the deadline to register", claim(launched), 19 * time.Minute, quiet(20 * time.Minute)},
		{
			"and no longer", claim(launched), 20 * time.Minute,
			outcome{NeverRegistered, sku(onDemand), 30 * time.Minute, "", true, 0},
		},
		{
			"two nodes that claim to be one machine never become one",
			claim(launched, func(o *Observation) { o.Registered = Condition{Status: StatusFalse, Reason: "MultipleNodesFound"} }), 2 * time.Minute,
			outcome{NeverRegistered, sku(onDemand), 30 * time.Minute, "", true, 0},
		},
		{"the clock for the GPUs starts when the node joined", claim(registered), 32 * time.Minute, quiet(33 * time.Minute)},
		{
			"Karpenter is content with 7 of 8 GPUs, we are not",
			claim(registered, func(o *Observation) { o.Initialized, o.GPUs = onTrue, 7 }), 33 * time.Minute,
			outcome{NeverInitialized, sku(onDemand), time.Hour, "", true, 0},
		},
		{"all GPUs are there: nothing more to look for", claim(registered, func(o *Observation) { o.Initialized, o.GPUs = onTrue, 8 }), time.Hour, quiet(0)},
		{
			"GPUs that go away later are no failure to start",
			claim(registered, func(o *Observation) { o.Initialized, o.WasUsable = onTrue, true }), 90 * time.Minute, quiet(0),
		},
		{
			"an unknown provider that deletes soon is out of capacity", claim(unknown, gone(10*time.Second)), time.Minute,
			outcome{NoCapacity, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"whatever its words", claim(unknown, says("SubscriptionQuotaReached", "Family Cores quota"), event(9*time.Second, ice, allOut), gone(10*time.Second)), time.Minute,
			outcome{NoCapacity, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"an unknown provider that deletes after 5 minutes has timed out", claim(unknown, says("LaunchFailed", "x"), gone(5*time.Minute)), time.Hour,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"an unknown provider may say what it likes until the deadline", claim(unknown, says("LaunchFailed", "x")), time.Minute,
			outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", false, 20 * time.Minute},
		},
		{
			"and has timed out then", claim(unknown, says("LaunchFailed", "x")), 20 * time.Minute,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"a machine that goes before it joins was lost", claim(launched, gone(3*time.Minute)), time.Hour,
			outcome{Lost, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"clock skew: a claim from the future may be refused now", claim(says("AllocationFailure", "")), -time.Minute,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation", true, 0},
		},
		{
			"clock skew: a claim that went before it came has no age", claim(gone(-time.Minute)), 0,
			outcome{NoCapacity, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"clock skew: deletion seen a few seconds early is a timeout still", claim(gone(5*time.Minute - 10*time.Second)), time.Hour,
			outcome{TimedOut, offering("", onDemand), 10 * time.Minute, "", true, 0},
		},
		{
			"clock skew: a registration from the future moves the deadline by no more than its own",
			claim(registered, func(o *Observation) { o.Registered.Since = created.Add(48 * time.Hour) }), 50 * time.Minute,
			outcome{NeverInitialized, sku(onDemand), time.Hour, "", true, 0},
		},
	})
}

func TestClassifySeveralSignals(t *testing.T) {
	const soon = 30 * time.Second
	const late = 90 * time.Second
	runClassify(t, []classifyCase{
		{
			"the provider's cache hides the quota behind a general ICE: the noted reason counts",
			claim(noted(soon, "SubscriptionQuotaReached", "q"), event(late, ice, allOut), gone(late)), late,
			outcome{Quota, family(onDemand), time.Hour, "azure-family-quota", true, 0},
		},
		{
			"one zone failed, then all was out: what was asked for is out",
			claim(noted(soon, "ZonalAllocationFailure", "unable to allocate resources in the selected zone (eastus-1). (x)"), event(late, ice, allOut), gone(late)), late,
			outcome{NoCapacity, offering("", Any), time.Hour, "azure-zonal", true, 0},
		},
		{
			"a flapping condition: throttling after a refusal takes nothing back",
			claim(by(KarpenterAWS), noted(soon, "VCPULimitExceeded", "v"), says("RequestLimitExceeded", "r")), late,
			outcome{Quota, sku(onDemand), 10 * time.Minute, "aws-vcpu-limit-reason", true, 0},
		},
		{
			"a flapping condition: nor does an unknown error", claim(noted(soon, "AllocationFailure", "a"), says("CreateInstanceFailed", "boom")), late,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation", true, 0},
		},
		{
			"a flapping condition: a reason that is gone again is kept", claim(noted(soon, "SKUNotAvailable", "s"), says("AwaitingReconciliation", "")), late,
			outcome{NotOffered, offering("", onDemand), 23 * time.Hour, "azure-sku-not-available", true, 0},
		},
		{
			"of two refusals the newer counts", claim(by(KarpenterAWS), noted(soon, "Unauthorized", "u"), event(late, ice, iceAWS+"UnfulfillableCapacity: x")), late,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-unfulfillable", true, 0},
		},
		{
			"the current reason is newer than any that was noted",
			claim(noted(soon, "SubscriptionQuotaReached", "q"), noted(late, "SKUNotAvailable", "s"), says("AllocationFailure", "a")), late,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation", true, 0},
		},
		{
			"an event of an earlier claim of the same name is not heard",
			claim(func(o *Observation) {
				o.Events = []Event{{UID: "u-0", Reason: ice, Message: allOut, At: created.Add(time.Second)}}
			}), soon,
			outcome{LookAgain: 20 * time.Minute},
		},
		{
			"what Karpenter tells about its work refuses nothing",
			claim(event(soon, "FailedConsistencyCheck", "AllocationFailed"), event(soon, "DisruptionBlocked", "NodeClassResolutionError")), late,
			outcome{LookAgain: 20 * time.Minute},
		},
		{
			"a stale refusal: the launch came after all", claim(noted(soon, "AllocationFailure", "a"), event(soon, "AsyncProvisioningError", "AllocationFailed"), launched), 2 * time.Minute,
			outcome{LookAgain: 20 * time.Minute},
		},
		{
			"a stale condition: there is a machine, though Launched still says it failed", claim(says("AllocationFailure", "a"), func(o *Observation) { o.ProviderID = "vm" }), late,
			outcome{LookAgain: 20 * time.Minute},
		},
		{
			"Azure takes an accepted request back: the event after the launch counts",
			claim(launched, event(2*time.Minute, "AsyncProvisioningError", "Failed to register: unable to allocate resources with selected VM size (big)."), gone(2*time.Minute)), time.Hour,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation-1.13", true, 0},
		},
		{
			"an event from before the launch does not explain a later loss",
			claim(event(soon, "AsyncProvisioningError", "AllocationFailed"), launched, gone(2*time.Minute)), time.Hour,
			outcome{Lost, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"a refusal does not explain the loss of a node",
			claim(event(soon, "AsyncProvisioningError", "AllocationFailed"), registered, gone(time.Hour)), time.Hour,
			outcome{Lost, offering("", onDemand), time.Minute, "", true, 0},
		},
		{
			"words beat a node class that has since fallen", claim(event(soon, ice, allOut), gone(soon), func(o *Observation) { o.Class = ClassNotReady }), soon,
			outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "all-unavailable", true, 0},
		},
		{
			"a family that nobody knows shrinks to the machine type", claim(says("SubscriptionQuotaReached", "q"), func(o *Observation) { o.Offering.Family = "" }), soon,
			outcome{Quota, sku(onDemand), time.Hour, "azure-family-quota", true, 0},
		},
		{
			"a code that ends like another is another", claim(says("CreateInstanceFailed", "ERROR CODE: OverconstrainedZonalAllocationRequest")), soon,
			outcome{NoCapacity, offering("", onDemand), time.Hour, "arm-overconstrained-zonal", true, 0},
		},
		{
			"a node class that was just made may not be known yet", claim(says("NodeClassReadinessUnknown", "x")), soon,
			outcome{Misconfigured, everything(Any), 0, "node-class-readiness-unknown", false, 2 * time.Minute},
		},
	})
}

func TestMessages(t *testing.T) {
	rules := mustRules(t)
	tests := []struct {
		reason string
		seen   Observation
		age    time.Duration
		want   string
	}{
		{
			"an event's own words, without Karpenter's preface", claim(event(0, ice, allOut)), 0,
			"insufficient capacity, all requested instance types were unavailable during launch",
		},
		{
			"the innermost message of nested JSON", claim(by(GPUProvisioner), says("LaunchFailed",
				`failed: { "code": "X", "message": "outer: {\n \"code\": \"SkuNotAvailable\", \"message\": \"size \\\"big\\\" is not available.\"}", "subcode": "" }`)), 0,
			`size "big" is not available.`,
		},
		{
			"cut off in the middle of the message", claim(by(GPUProvisioner), says("LaunchFailed", `SkuNotAvailable { "message": "size big is not`)), 0,
			"size big is not",
		},
		{"on one line", claim(says("AllocationFailure", "no\n\troom\x00 left")), 0, "no room left"},
		{"the reason where there are no words", claim(says("AllocationFailure", " \n")), 0, "AllocationFailure"},
		{
			"ours where nobody spoke", claim(gone(time.Second)), 0,
			"the NodeClaim was deleted before it was launched: no capacity or no quota for big",
		},
		{
			"the node class's words", claim(gone(time.Second), func(o *Observation) { o.Class, o.ClassMessage = ClassNotReady, "SubnetsReady=False" }), 0,
			"the node class is not ready: SubnetsReady=False",
		},
		{"the deadline", claim(), 20 * time.Minute, "no big was launched by 10:20:00 UTC, and the provider gave no reason"},
		{"the deadline to join", claim(launched), time.Hour, "the machine runs, but it did not join the cluster by 10:20:00 UTC"},
		{
			"what keeps a node from being usable",
			claim(registered, func(o *Observation) {
				o.Initialized = Condition{Status: StatusUnknown, Reason: "ResourceNotRegistered", Message: `Resource "nvidia.com/gpu" was requested but not registered`}
			}), time.Hour,
			`the node was not usable by 10:33:00 UTC: the node advertises 0 of 8 GPUs, Resource "nvidia.com/gpu" was requested but not registered`,
		},
		{
			"GPUs that are short", claim(registered, func(o *Observation) { o.Initialized, o.GPUs = onTrue, 7 }), time.Hour,
			"the node was not usable by 10:33:00 UTC: the node advertises 7 of 8 GPUs",
		},
		{"cut at a whole letter", claim(says("AllocationFailure", strings.Repeat("ä", 300))), 0, strings.Repeat("ä", 254) + "…"},
		{
			"cut at a whole letter that does not fall on the limit", claim(says("AllocationFailure", "x"+strings.Repeat("ä", 300))), 0,
			"x" + strings.Repeat("ä", 254) + "…",
		},
		{"no age below nothing", claim(registered, gone(-time.Hour)), 0, "the machine disappeared 0s after it was requested"},
		{"the age of what was lost", claim(registered, gone(time.Hour)), time.Hour, "the machine disappeared 1h0m0s after it was requested"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := rules.Classify(test.seen, limits, created.Add(test.age))
			if diff := cmp.Diff(test.want, got.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventsOfOneMoment(t *testing.T) {
	rules := mustRules(t)
	one := event(time.Second, ice, iceAWS+"UnfulfillableCapacity: x")
	two := event(time.Second, ice, iceAWS+"MaxFleetCountExceeded: x")
	first, second := rules.Classify(claim(by(KarpenterAWS), one, two), limits, created), rules.Classify(claim(by(KarpenterAWS), two, one), limits, created)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("their order in the list matters:\n%s", diff)
	}
}

func TestDecisive(t *testing.T) {
	final := func(cause Cause, scope Scope, cooldown time.Duration) Verdict {
		return Verdict{Cause: cause, Scope: scope, Cooldown: cooldown, Final: true}
	}
	waits := func(minutes int) Verdict { return Verdict{LookAgain: minute(minutes)} }
	stockOut := final(NoCapacity, sku(Any), time.Hour)
	stops := final(Misconfigured, everything(Any), 0)
	heard := Verdict{Cause: Unknown, Scope: offering("", onDemand), LookAgain: minute(2)}
	tests := []struct {
		reason   string
		verdicts []Verdict
		want     Verdict
	}{
		{"no machine", nil, Verdict{}},
		{"all is well", []Verdict{{}, {}}, Verdict{}},
		{"some wait: as soon as any", []Verdict{{}, waits(20), waits(10)}, waits(10)},
		{"one refusal decides", []Verdict{{}, waits(20), stockOut}, stockOut},
		{"what has been heard, and when to look again", []Verdict{waits(1), heard}, Verdict{Cause: Unknown, Scope: heard.Scope, LookAgain: minute(1)}},
		{"what stops everything goes first", []Verdict{final(Quota, everything(spot), time.Hour), stops, stockOut}, stops},
		{"then the widest scope", []Verdict{final(NoCapacity, offering("z", Any), 5*time.Hour), stockOut}, stockOut},
		{"then the longest cooldown", []Verdict{final(Quota, sku(Any), time.Minute), stockOut}, stockOut},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			backwards := slices.Clone(test.verdicts)
			slices.Reverse(backwards)
			for _, verdicts := range [][]Verdict{test.verdicts, backwards} {
				if diff := cmp.Diff(test.want, Decisive(verdicts)); diff != "" {
					t.Errorf("verdict (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestProviderOf(t *testing.T) {
	for class, want := range map[string]Provider{
		"karpenter.azure.com/AKSNodeClass": KarpenterAzure, "karpenter.k8s.aws/EC2NodeClass": KarpenterAWS,
		"eks.amazonaws.com/NodeClass": KarpenterAWS,
		"kaito.sh/KaitoNodeClass":     GPUProvisioner, "local.modelberth.dev/LocalNodeClass": UnknownProvider,
	} {
		group, kind, _ := strings.Cut(class, "/")
		if got := ProviderOf(group, kind); got != want {
			t.Errorf("%s: provider %q, want %q", class, got, want)
		}
	}
}

// TestClassifyGuesses: only for these is NoCapacity a guess.
func TestClassifyGuesses(t *testing.T) {
	const soon = 20 * time.Second
	for _, test := range []struct {
		reason string
		seen   Observation
		want   bool
	}{
		{"vanished without a word", claim(gone(soon)), true},
		{"vanished with words that say little", claim(event(soon, ice, allOut), gone(soon)), true},
		{"vanished with clear words", claim(by(KarpenterAWS), event(soon, ice, iceAWS+"UnfulfillableCapacity: no"), gone(soon)), false},
		{"said clearly", claim(says("AllocationFailure", "")), false},
		{"the node class explains it", claim(gone(soon), func(o *Observation) { o.Class = ClassMissing }), false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if v := mustRules(t).Classify(test.seen, limits, created.Add(soon)); v.Guessed != test.want || !v.Final {
				t.Errorf("guessed %v, final %v (%s %s); want guessed %v", v.Guessed, v.Final, v.Cause, v.Message, test.want)
			}
		})
	}
}

// TestClassifyMendedByClass: if a message or the state of the node class blames the class, its state also shows the
// fix.
func TestClassifyMendedByClass(t *testing.T) {
	const soon = 20 * time.Second
	in := func(class ClassState) func(*Observation) { return func(o *Observation) { o.Class = class } }
	nodeClass := `NodeClaim chat-0 event: insufficient capacity, resolving %s, "gpu" not found`
	for _, test := range []struct {
		reason string
		seen   Observation
		want   Mender
	}{
		{"vanished while the class was missing", claim(gone(soon)), MendedByClass},
		{"Azure's event", claim(event(soon, "NodeClassResolutionError", "Failed resolving NodeClass"), gone(soon)), MendedByClass},
		{"Azure's words", claim(event(soon, ice, strings.Replace(nodeClass, "%s", "node class", 1)), gone(soon)), MendedByClass},
		{"AWS's words", claim(by(KarpenterAWS), event(soon, ice, strings.Replace(nodeClass, "%s", "nodeclass", 1)), gone(soon)), MendedByClass},
		{"nobody looked at the class", claim(says("NodeClassReadinessUnknown", "NodeClass is in Ready=Unknown")), MendedByClass},
		{"rights are no matter of the class", claim(says("LaunchFailed", "AuthorizationFailed")), ""},
	} {
		for _, class := range []ClassState{ClassMissing, ClassNotReady} {
			o := test.seen
			in(class)(&o)
			v := mustRules(t).Classify(o, limits, created.Add(10*time.Minute))
			state := ClassState("")
			if test.want != "" {
				state = class
			}
			if v.Cause != Misconfigured || v.MendedBy != test.want || v.Class != state {
				t.Errorf("%s: %s, mended by %q from %q; want Misconfigured, %q from %q", test.reason, v.Cause, v.MendedBy, v.Class, test.want, state)
			}
		}
	}
}

func TestMended(t *testing.T) {
	states := []ClassState{ClassMissing, ClassNotReady, ClassNotSeen, ClassReady}
	better := map[ClassState][]ClassState{
		ClassMissing:  {ClassNotSeen, ClassReady},
		ClassNotReady: {ClassNotSeen, ClassReady},
		ClassNotSeen:  {ClassReady},
		ClassReady:    nil, // otherwise a request would be repeated and refused without end
	}
	for then, mended := range better {
		for _, now := range states {
			if got, want := Mended(then, now), slices.Contains(mended, now); got != want {
				t.Errorf("from %q to %q is mended: %v, want %v", then, now, got, want)
			}
		}
	}
}
