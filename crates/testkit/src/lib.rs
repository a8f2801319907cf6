//! Oracles, histories and crash runners for testing Bolide
