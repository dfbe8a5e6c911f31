// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// InferenceSet keeps a number of equal Workspaces, its replicas, behind one Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:storageversion
// +kubebuilder:resource:path=inferencesets,scope=Namespaced,categories=inferenceset,shortName={is,isets}
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="ReadyReplicas",type="integer",JSONPath=".status.readyReplicas"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Updated",type="integer",priority=1,JSONPath=".status.updatedReplicas"
// +kubebuilder:printcolumn:name="USD/h",type="string",priority=1,JSONPath=".status.hourlyPrice"
// +kubebuilder:printcolumn:name="Reason",type="string",priority=1,JSONPath=".status.conditions[?(@.type==\"Ready\")].reason"
type InferenceSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +optional
	Spec InferenceSetSpec `json:"spec,omitempty"`
	// status is the observed state. Before the controller has written it, observedGeneration is -1, so that tools which
	// compare it with the generation wait.
	// +kubebuilder:default={observedGeneration:-1}
	// +optional
	Status InferenceSetStatus `json:"status,omitempty"`
}

// InferenceSetList is a list of InferenceSets.
//
// +kubebuilder:object:root=true
type InferenceSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InferenceSet `json:"items"`
}

// InferenceSetSpec is the desired state of an InferenceSet.
type InferenceSetSpec struct {
	// replicas is the number of Workspaces; 0 keeps the set without machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// onDemandReplicas is how many of the Workspaces use no spot machines, if the template allows spot. The others use
	// any capacity type of the template. Modelberth only.
	// +optional
	OnDemandReplicas int32 `json:"onDemandReplicas,omitempty"`
	// zoneSpread spreads the Workspaces over the zones in template.resource.placement.zones, which must name at least two.
	// Each new Workspace gets one of them. Modelberth only.
	// +optional
	ZoneSpread *ZoneSpreadSpec `json:"zoneSpread,omitempty"`
	// nodeCountLimit is the maximum number of machines of all Workspaces together. The set creates no Workspace beyond
	// this limit. A lower limit deletes no Workspace.
	// +optional
	NodeCountLimit int `json:"nodeCountLimit,omitempty"`
	// autoscaling is a policy for the number of replicas by demand. The controller then sets replicas and reports its
	// decisions in the condition Autoscaling. Leave replicas out of the manifest. Modelberth only.
	// +optional
	Autoscaling *AutoscalingSpec `json:"autoscaling,omitempty"`
	// template describes the Workspaces. updateStrategy decides how edits roll out.
	// +optional
	Template InferenceSetTemplate `json:"template,omitempty"`
	// labelSelector becomes resource.labelSelector of the Workspaces.
	// +optional
	Selector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// updateStrategy selects how an edit of the template reaches existing Workspaces.
	// +kubebuilder:default={type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
	// +optional
	UpdateStrategy InferenceSetUpdateStrategy `json:"updateStrategy,omitempty"`
	// autoUpgrade has no effect: it exists for KAITO's manifests. Modelberth never upgrades a model on its own.
	// +optional
	AutoUpgrade *AutoUpgradeSpec `json:"autoUpgrade,omitempty"`
}

// UnsatisfiableAction is ScheduleAnyway or DoNotSchedule, as in a Pod's topologySpreadConstraints.
//
// +kubebuilder:validation:MaxLength=63
type UnsatisfiableAction string

// What a set does if a zone has no machine for a Workspace.
const (
	ScheduleAnyway UnsatisfiableAction = "ScheduleAnyway"
	DoNotSchedule  UnsatisfiableAction = "DoNotSchedule"
)

// ZoneSpreadSpec spreads Workspaces over zones. It never moves a Workspace that has machines.
type ZoneSpreadSpec struct {
	// maxSkew is the largest allowed difference between the numbers of Workspaces in two zones. Unset means 1.
	// +optional
	MaxSkew int32 `json:"maxSkew,omitempty"`
	// whenUnsatisfiable decides about a Workspace whose zone has no machine for it. ScheduleAnyway allows it a further
	// zone, and at last all. DoNotSchedule moves it to another zone only within maxSkew; otherwise the Workspace waits for
	// its zone. Unset means ScheduleAnyway.
	// +optional
	WhenUnsatisfiable UnsatisfiableAction `json:"whenUnsatisfiable,omitempty"`
}

// InferenceSetTemplate describes the Workspaces of an InferenceSet.
type InferenceSetTemplate struct {
	// metadata has the labels and annotations of the Workspaces.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitempty"`
	// resource selects the machines of each Workspace.
	// +optional
	Resource InferenceSetResource `json:"resource,omitempty"`
	// inference describes the model to serve. Required.
	// +optional
	Inference *InferenceSpec `json:"inference,omitempty"`
}

// TemplateMetadata is the metadata of the Workspaces. Other fields of an object's metadata are stored and have no
// effect.
type TemplateMetadata struct {
	// labels of the Workspaces.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the Workspaces.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// InferenceSetResource selects the machines of each Workspace.
type InferenceSetResource struct {
	// instanceType is the machine type, for example Standard_NC24ads_A100_v4. If it is unset, the planner picks the
	// cheapest suitable one.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// partition requests a share of a machine's accelerators.
	// +optional
	Partition *PartitionSpec `json:"partition,omitempty"`
	// placement limits the machines of each Workspace and their price. Modelberth only.
	// +optional
	Placement *PlacementSpec `json:"placement,omitempty"`
}

// UpdateStrategyType is RollingUpdate or OnDelete.
//
// +kubebuilder:validation:MaxLength=63
type UpdateStrategyType string

// The ways to bring an edit of the template to existing Workspaces.
const (
	UpdateRolling  UpdateStrategyType = "RollingUpdate"
	UpdateOnDelete UpdateStrategyType = "OnDelete"
)

// InferenceSetUpdateStrategy selects how an edit of the template reaches existing Workspaces.
type InferenceSetUpdateStrategy struct {
	// type is RollingUpdate, or OnDelete: then only new Workspaces have the edit.
	// +optional
	Type UpdateStrategyType `json:"type,omitempty"`
	// rollingUpdate is for type RollingUpdate only.
	// +optional
	RollingUpdate *InferenceSetRollingUpdate `json:"rollingUpdate,omitempty"`
}

// InferenceSetRollingUpdate limits a rolling update.
type InferenceSetRollingUpdate struct {
	// partition is the number of Workspaces that keep the previous template. With rollback, new Workspaces get the
	// previous template until that many have it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Partition *int32 `json:"partition,omitempty"`
	// maxUnavailable is how many Workspaces may be unready for the update: a number, or a percentage of replicas,
	// rounded up. With 0, a new Workspace becomes ready before an old one is deleted. Unset means 1. The last ready
	// Workspace is always replaced as with 0.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// canaryWeight is the percentage of the router's requests that go to Workspaces with the new template, while
	// partition keeps other Workspaces on the previous template. If it is unset, the router balances by load. Needs
	// rollback. Modelberth only.
	// +optional
	CanaryWeight *int32 `json:"canaryWeight,omitempty"`
	// minReadySeconds is how many seconds a Workspace with a new template must be ready before the rollout continues.
	// Modelberth only.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// rollback returns all Workspaces to the previous template if a new one fails. If it is unset, a failed rollout
	// stops, and the Workspaces that it did not reach keep the previous template. Modelberth only.
	// +optional
	Rollback *RollbackSpec `json:"rollback,omitempty"`
}

// RollbackSpec decides when a rollout has failed: a Workspace with the new template gets no plan, its engine fails in a
// way that neither a restart nor another machine repairs, it does not answer in time, or the API server rejects it. With
// comparison, a rollout also fails if the new template serves worse.
type RollbackSpec struct {
	// progressDeadline limits the time in which a Workspace with the new template must have been ready for
	// minReadySeconds. The time begins when the Workspace has its machines. Unset means 1h.
	// +optional
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`
	// comparison makes a rollout fail if the new template serves the router's requests worse than the previous one. The
	// rollout waits for the result. If it is unset, the templates are not compared. Needs the router of the chart.
	// +optional
	Comparison *ComparisonSpec `json:"comparison,omitempty"`
}

// ComparisonSpec is how much worse a new template may serve. Only a difference beyond chance counts.
type ComparisonSpec struct {
	// maxErrorIncrease is the largest accepted increase of the share of failed requests, in percentage points. Unset
	// means 5.
	// +optional
	MaxErrorIncrease *int32 `json:"maxErrorIncrease,omitempty"`
	// maxTimeToFirstTokenIncrease is the largest accepted increase of the time to the first token of streams, in percent.
	// If it is unset, this time is not compared.
	// +optional
	MaxTimeToFirstTokenIncrease *int32 `json:"maxTimeToFirstTokenIncrease,omitempty"`
	// maxTimePerOutputTokenIncrease is the largest accepted increase of the time per output token of streams, in percent.
	// If it is unset, this time is not compared.
	// +optional
	MaxTimePerOutputTokenIncrease *int32 `json:"maxTimePerOutputTokenIncrease,omitempty"`
	// minRequests is how many requests each template needs before there is a result. Unset means 100.
	// +optional
	MinRequests *int32 `json:"minRequests,omitempty"`
	// deadline is how long a rollout waits for the result while both templates have ready Workspaces. Then it goes on
	// without one. Unset means 15m.
	// +optional
	Deadline *metav1.Duration `json:"deadline,omitempty"`
}

// UpgradeStrategy is how KAITO upgrades the base image of Workspaces.
//
// +kubebuilder:validation:Enum=InPlace;Surge
type UpgradeStrategy string

// AutoUpgradeSpec is KAITO's upgrade of base images.
type AutoUpgradeSpec struct {
	// enabled requests upgrades.
	// +kubebuilder:default=false
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// strategy of the upgrades.
	// +kubebuilder:default=InPlace
	// +optional
	Strategy UpgradeStrategy `json:"strategy,omitempty"`
	// maintenanceWindow is when upgrades may begin.
	// +optional
	MaintenanceWindow *MaintenanceWindow `json:"maintenanceWindow,omitempty"`
}

// MaintenanceWindow is a recurring window of time.
type MaintenanceWindow struct {
	// schedule is a cron expression of five fields in UTC. Required.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// duration of the window.
	// +kubebuilder:default="4h"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// InferenceSetStatus is the observed state of an InferenceSet.
type InferenceSetStatus struct {
	// observedGeneration is the generation of this status.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is the number of Workspaces that exist and are not being deleted.
	// +optional
	Replicas int32 `json:"replicas"`
	// readyReplicas is the number of answering Workspaces.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// updatedReplicas is the number of Workspaces with the current template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// selector is the label selector of all Workspaces' pods.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Selector string `json:"selector,omitempty"`
	// hourlyPrice of the plans of all Workspaces, in USD per hour; empty if no price is known. A Workspace that is
	// being deleted counts until its machines are gone.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	HourlyPrice string `json:"hourlyPrice,omitempty"`
	// conditions report the state of the set and how to solve problems.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// currentRevision is the ControllerRevision that holds the last template with which all Workspaces were ready: the
	// target of a rollback. Recorded only with updateStrategy.rollingUpdate.rollback. Modelberth only.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// rollout is the state of the template in spec while it differs from currentRevision. Recorded only with
	// updateStrategy.rollingUpdate.rollback. Modelberth only.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// canary describes a rollout for the router while both templates have Workspaces: with canaryWeight while
	// partition keeps Workspaces on the previous template, and with comparison. Modelberth only.
	// +optional
	Canary *CanaryStatus `json:"canary,omitempty"`
	// performance holds benchmark results of KAITO.
	// +optional
	Performance *Performance `json:"performance,omitempty"`
	// autoUpgrade is KAITO's record of upgrades.
	// +optional
	AutoUpgrade *AutoUpgradeStatus `json:"autoUpgrade,omitempty"`
}

// RolloutStatus is the state of a new template.
type RolloutStatus struct {
	// revision is the name that the ControllerRevision of the template has or would have.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// startTime is when the rollout began.
	StartTime metav1.Time `json:"startTime"`
	// updateTime is when an existing Workspace last got the template. The progress deadline starts then, or once the
	// Workspace has its machines, if that is later.
	// +optional
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`
	// availableReplicas is the number of Workspaces with the template that have been ready for minReadySeconds; unset
	// after a failure.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// progressTime is when availableReplicas last changed. The deadline starts again then.
	// +optional
	ProgressTime *metav1.Time `json:"progressTime,omitempty"`
	// comparedTime is when the rollout stopped waiting for the comparison with the previous template: it passed, or its
	// deadline did. Recorded only with updateStrategy.rollingUpdate.rollback.comparison.
	// +optional
	ComparedTime *metav1.Time `json:"comparedTime,omitempty"`
	// refusedTime is when the API server began to reject Workspaces because of the template; unset while it rejects
	// none.
	// +optional
	RefusedTime *metav1.Time `json:"refusedTime,omitempty"`
	// failedTime is when the rollout failed and the rollback began; unset before.
	// +optional
	FailedTime *metav1.Time `json:"failedTime,omitempty"`
	// message explains the failure.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`
}

// CanaryStatus is the current split of requests between two templates.
type CanaryStatus struct {
	// templateHash is the value of the label modelberth.dev/template-hash on the Workspaces with the new template.
	// +kubebuilder:validation:MaxLength=63
	TemplateHash string `json:"templateHash"`
	// weight is the percentage of the requests for these Workspaces. If it is unset, the router balances by load.
	// +optional
	Weight *int32 `json:"weight,omitempty"`
}

// AutoUpgradeStatus is KAITO's record of upgrades.
type AutoUpgradeStatus struct {
	// numDriftedWorkspaces is the number of Workspaces to upgrade.
	// +optional
	NumDriftedWorkspaces *int32 `json:"numDriftedWorkspaces,omitempty"`
	// lastSuccessfulUpgradeTime is when the last upgrade ended.
	// +optional
	LastSuccessfulUpgradeTime *metav1.Time `json:"lastSuccessfulUpgradeTime,omitempty"`
}

// WokenAt returns the time in the annotation AnnotationWake; zero without a valid one.
func (s *InferenceSet) WokenAt() time.Time {
	at, err := time.Parse(time.RFC3339, s.Annotations[AnnotationWake])
	if err != nil {
		return time.Time{}
	}
	return at
}

// DesiredReplicas returns spec.replicas with its default.
func (s *InferenceSet) DesiredReplicas() int {
	if s.Spec.Replicas == nil {
		return 1
	}
	return int(*s.Spec.Replicas)
}
