// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"testing"
	"time"
)

// TestClassifyAWSReasons classifies each reason of Karpenter on AWS for the Launched condition, with an empty message,
// and each error of a fleet that becomes an event.
func TestClassifyAWSReasons(t *testing.T) {
	const soon = 30 * time.Second
	stops := func(capacityType, rule string) outcome {
		scope := everything(Any)
		if capacityType == "spot" {
			scope = everything(spot)
		}
		return outcome{Misconfigured, scope, 0, rule, true, 0}
	}
	passes := outcome{Unknown, offering("", onDemand), 10 * time.Minute, "busy", false, 2 * time.Minute}
	unknown := outcome{Unknown, offering("", onDemand), 10 * time.Minute, "", false, 2 * time.Minute}
	subnet := outcome{NoCapacity, offering("", Any), 10 * time.Minute, "aws-subnet-full", true, 0}
	var tests []classifyCase
	for _, row := range []struct {
		reason string
		want   outcome
	}{
		{"SpotSLRCreationFailed", stops("spot", "aws-spot-role")},
		{"Unauthorized", stops("", "aws-configuration")},
		{"AMIAuthorizationFailure", stops("", "aws-configuration")},
		{"InstanceProfileNameInvalid", stops("", "aws-configuration")},
		{"InvalidAMIID", stops("", "aws-configuration")},
		{"AMINotFound", stops("", "aws-configuration")},
		{"SubnetResolutionFailed", stops("", "aws-configuration")},
		{"LaunchTemplateNotFound", passes},
		{"RequestLimitExceeded", passes},
		{"InternalError", passes},
		{"InstanceTypeResolutionFailed", passes},
		{"InstanceTypeFilteringFailed", passes},
		{"LaunchFailed", unknown},
		{"FreeTierIneligible", outcome{NotOffered, sku(Any), 23 * time.Hour, "aws-free-tier", true, 0}},
		{"FleetQuotaExceeded", outcome{Quota, everything(Any), 10 * time.Minute, "aws-fleet-limit", true, 0}},
		{"AccountPendingVerification", outcome{Quota, everything(Any), 30 * time.Minute, "aws-pending-verification", true, 0}},
		{"SpotQuotaExceeded", outcome{Quota, family(spot), time.Hour, "aws-spot-limit-reason", true, 0}},
		{"VCPULimitExceeded", outcome{Quota, sku(onDemand), 10 * time.Minute, "aws-vcpu-limit-reason", true, 0}},
		{"InsufficientFreeAddressesInSubnet", subnet},
		{"NodeClassReadinessUnknown", outcome{Misconfigured, everything(Any), 0, "node-class-readiness-unknown", false, 2 * time.Minute}},
	} {
		tests = append(tests, classifyCase{row.reason, claim(by(KarpenterAWS), says(row.reason, "words")), soon, row.want})
	}
	for _, row := range []struct {
		code string
		want outcome
	}{
		{"InsufficientInstanceCapacity", outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-no-capacity", true, 0}},
		{"MaxSpotInstanceCountExceeded", outcome{Quota, family(spot), time.Hour, "aws-spot-limit", true, 0}},
		{"VcpuLimitExceeded", outcome{Quota, sku(onDemand), 10 * time.Minute, "aws-vcpu-limit", true, 0}},
		{"UnfulfillableCapacity", outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-unfulfillable", true, 0}},
		{"Unsupported", outcome{NotOffered, offering("", Any), 23 * time.Hour, "aws-unsupported", true, 0}},
		{"InsufficientFreeAddressesInSubnet", outcome{NoCapacity, offering("", Any), 10 * time.Minute, "aws-subnet-full-event", true, 0}},
		{"MaxFleetCountExceeded", outcome{Quota, everything(Any), 10 * time.Minute, "aws-fleet-limit-event", true, 0}},
		{"ReservationCapacityExceeded", outcome{NoCapacity, offering("", onDemand), 10 * time.Minute, "aws-reservation-full", true, 0}},
	} {
		said := event(soon, ice, iceAWS+row.code+": words")
		tests = append(tests, classifyCase{"a fleet's " + row.code, claim(by(KarpenterAWS), said, gone(soon)), soon, row.want})
	}
	runClassify(t, tests)
}

// TestClassifyThroughGPUProvisioner classifies Resource Manager's messages from gpu-provisioner, which has one reason
// for all of them and retries forever.
func TestClassifyThroughGPUProvisioner(t *testing.T) {
	const soon = 30 * time.Second
	said := func(code, message string) Observation {
		return claim(by(GPUProvisioner), says("LaunchFailed", `creating agent pool failed: RESPONSE 409 ERROR CODE: `+code+
			` { "code": "`+code+`", "message": "`+message+`" }`))
	}
	quota := "Operation could not be completed as it results in exceeding approved standardXFamily Cores quota. Additional details - Current Limit: "
	runClassify(t, []classifyCase{
		{
			"a quota of 0", said("OperationNotAllowed", quota+"0, Current Usage: 0, Additional Required: 24"), soon,
			outcome{Quota, family(onDemand), time.Hour, "arm-family-quota-zero", true, 0},
		},
		{
			"too small a quota", said("OperationNotAllowed", quota+"100, Current Usage: 96, Additional Required: 24"), soon,
			outcome{Quota, sku(onDemand), 10 * time.Minute, "arm-family-quota", true, 0},
		},
		{
			"not sold here", said("SkuNotAvailable", "The requested size for resource is currently not available"), soon,
			outcome{NotOffered, offering("", onDemand), 23 * time.Hour, "arm-sku-not-available", true, 0},
		},
		{
			"out of it", said("AllocationFailed", "Allocation failed"), soon,
			outcome{NoCapacity, sku(Any), time.Hour, "azure-allocation-1.13", true, 0},
		},
		{
			"out of it in a zone, of which it can choose none", said("ZonalAllocationFailed", "Allocation failed"), soon,
			outcome{NoCapacity, offering("", Any), time.Hour, "arm-zonal", true, 0},
		},
		{
			"no rights", said("AuthorizationFailed", "The client does not have authorization to perform the action"), soon,
			outcome{Misconfigured, everything(Any), 0, "arm-authorization", true, 0},
		},
	})
}
