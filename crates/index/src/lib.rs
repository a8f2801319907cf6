//! Secondary indexes of Bolide and the one lookup driver
